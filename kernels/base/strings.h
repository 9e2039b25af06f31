// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_KERNELS_BASE_STRINGS_H_
#define RIVULET_KERNELS_BASE_STRINGS_H_

#include <string_view>

#include "absl/strings/string_view.h"

namespace rivulet {

// Debian's Abseil is built with its own string_view, and neither type converts to the other. Our
// interfaces use std::string_view; these two convert at calls into Abseil. The view's bytes are
// shared, never copied.
inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view ToStd(absl::string_view text) { return {text.data(), text.size()}; }

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_STRINGS_H_
