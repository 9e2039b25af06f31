// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_BYTE_SIZE_H_
#define RIVULET_SERVER_BYTE_SIZE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace rivulet {

// A number of bytes as a flag's type: "4096", "512MiB", "1.5GiB"; suffixes KiB, MiB, GiB, TiB.
struct ByteSize {
  uint64_t bytes = 0;
};

bool AbslParseFlag(absl::string_view text, ByteSize* size, std::string* error);
std::string AbslUnparseFlag(ByteSize size);

}  // namespace rivulet

#endif  // RIVULET_SERVER_BYTE_SIZE_H_
