// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_SECURITY_READ_FILE_H_
#define RIVULET_SERVER_SECURITY_READ_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace rivulet {

// NOT_FOUND if it cannot be read, or is not a regular file: a pipe in its place must not block.
// INVALID_ARGUMENT if it has more bytes. Both name it.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most_bytes);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SECURITY_READ_FILE_H_
