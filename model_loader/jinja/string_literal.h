// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_MODEL_LOADER_JINJA_STRING_LITERAL_H_
#define RIVULET_MODEL_LOADER_JINJA_STRING_LITERAL_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace rivulet::jinja {

// The value of a string literal, given what stands between its quotes: Python's escapes are
// replaced, unknown ones stay as they are. INVALID_ARGUMENT for an incomplete one, for \N{...}, and
// for a surrogate.
absl::StatusOr<std::string> DecodeStringLiteral(std::string_view source);

}  // namespace rivulet::jinja

#endif  // RIVULET_MODEL_LOADER_JINJA_STRING_LITERAL_H_
