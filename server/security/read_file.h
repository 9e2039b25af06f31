// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_SECURITY_READ_FILE_H_
#define RIVULET_SERVER_SECURITY_READ_FILE_H_

#include <cstddef>
#include <fstream>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace rivulet {

// NOT_FOUND if it cannot be read; INVALID_ARGUMENT if it has more bytes. Both name it.
inline absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most_bytes) {
  std::ifstream file(path, std::ios::binary);
  std::string text(most_bytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || !file.is_open()) {
    return absl::NotFoundError(absl::StrCat(path,
                                            " cannot be read: does it exist, and may this "
                                            "user read it?"));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() <= most_bytes) return text;
  return absl::InvalidArgumentError(absl::StrCat(path, " has more than ", most_bytes, " bytes"));
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_SECURITY_READ_FILE_H_
