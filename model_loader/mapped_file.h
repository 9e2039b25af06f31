// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A regular file, mapped read-only for as long as the object lives. Nothing is read before it is
// used or asked for (ReadAhead).
//
// The bytes are the file's own, not a copy. To replace a file of a running server, write
// a new file and rename it over the old one, as package managers and `mv` do: the mapping then
// keeps the old file. Writing into the file in place changes the bytes, and shortening it makes the
// next access to a lost page end the process (SIGBUS), which no check here can prevent.
//
// Threading: constant after Open.
#ifndef RIVULET_MODEL_LOADER_MAPPED_FILE_H_
#define RIVULET_MODEL_LOADER_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rivulet {

class MappedFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED or INVALID_ARGUMENT (a directory, a pipe, ...) with path and
  // remedy.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  // The modification time at Open, in nanoseconds since 1970.
  int64_t changed_nanoseconds() const { return changed_nanoseconds_; }

  // Hints about bytes of the file. ReadAhead: they will be needed soon. GiveUp: their pages need no
  // memory of this process any more. Bytes that are used after it come from the system's cache, or
  // from the disk again. Neither changes what bytes() holds, and any thread may call them.
  void ReadAhead(const uint8_t* data, size_t bytes) const;
  void GiveUp(const uint8_t* data, size_t bytes) const;

  // DATA_LOSS if the file's size or modification time has changed since Open.
  absl::Status CheckUnchanged() const;

 private:
  MappedFile() = default;
  void Advise(const uint8_t* data, size_t bytes, int advice) const;

  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  int64_t changed_nanoseconds_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_MAPPED_FILE_H_
