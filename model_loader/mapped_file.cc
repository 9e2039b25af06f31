// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace rivulet {
namespace {

int64_t ChangeTime(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a pipe by mistake must fail below, not wait for a writer.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  const auto closer = absl::MakeCleanup([file] { close(file); });
  struct stat info;
  if (fstat(file, &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot stat ", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  std::unique_ptr<MappedFile> mapped(new MappedFile);
  mapped->path_ = path;
  mapped->size_ = static_cast<size_t>(info.st_size);
  mapped->changed_nanoseconds_ = ChangeTime(info);
  if (mapped->size_ == 0) return mapped;  // mmap refuses empty ranges
  void* const data = mmap(nullptr, mapped->size_, PROT_READ, MAP_PRIVATE, file, 0);
  if (data == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", path));
  mapped->data_ = static_cast<const uint8_t*>(data);
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

void MappedFile::ReadAhead(const uint8_t* data, size_t bytes) const {
  Advise(data, bytes, MADV_WILLNEED);
}

// The mapping is private and never written, so dropped pages lose nothing.
void MappedFile::GiveUp(const uint8_t* data, size_t bytes) const {
  Advise(data, bytes, MADV_DONTNEED);
}

// Of whole pages: those that the bytes touch, as far as they are the file's.
void MappedFile::Advise(const uint8_t* data, size_t bytes, int advice) const {
  static const auto kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (data < data_ || data >= data_ + size_) return;
  const auto from = static_cast<size_t>(data - data_);
  const size_t end = from + std::min(bytes, size_ - from);
  const size_t first_page = from / kPage * kPage;
  madvise(const_cast<uint8_t*>(data_) + first_page, end - first_page, advice);
}

absl::Status MappedFile::CheckUnchanged() const {
  struct stat info;
  if (stat(path_.c_str(), &info) == 0 && static_cast<size_t>(info.st_size) == size_ &&
      ChangeTime(info) == changed_nanoseconds_) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat(path_, " changed while it was read; load again when nothing writes to it"));
}

}  // namespace rivulet
