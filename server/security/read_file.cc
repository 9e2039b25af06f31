// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/security/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace rivulet {
namespace {

// Appends up to so many bytes. False after an error.
bool ReadInto(int file, size_t most_bytes, std::string& text) {
  while (text.size() < most_bytes) {
    char piece[65536];
    const ssize_t got = read(file, piece, sizeof(piece));
    if (got == 0) return true;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    text.append(piece, static_cast<size_t>(got));
  }
  return true;
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most_bytes) {
  const int file = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat kind = {};
  const bool regular = file >= 0 && fstat(file, &kind) == 0 && S_ISREG(kind.st_mode);
  std::string text;
  const bool read = regular && ReadInto(file, most_bytes + 1, text);
  if (file >= 0) close(file);
  if (!read) {
    return absl::NotFoundError(
        absl::StrCat(path, " cannot be read: is it a file, and may this user read it?"));
  }
  if (text.size() <= most_bytes) return text;
  return absl::InvalidArgumentError(absl::StrCat(path, " has more than ", most_bytes, " bytes"));
}

}  // namespace rivulet
