// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/packed_file_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "model_loader/packed_file.h"

namespace rivulet {
namespace {

constexpr char kPart[] = ".packed.part-";

// Of a new file, locked, whose name replaces the template's last letters; -1 and errno.
int CreateLocked(const std::string& pattern, std::string& name) {
  for (;;) {
    name = pattern;
    const int file = mkostemp(name.data(), O_CLOEXEC);
    if (file < 0) return -1;
    // Where files cannot be locked, no process takes this one for abandoned either.
    if (flock(file, LOCK_EX) != 0) return file;
    struct stat info;
    if (fstat(file, &info) != 0 || info.st_nlink > 0) return file;
    close(file);  // between the two calls a process took it for abandoned
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<PackedFileWriter>> PackedFileWriter::Create(const std::string& path,
                                                                           size_t bytes) {
  std::unique_ptr<PackedFileWriter> writer(new PackedFileWriter(path));
  writer->hash_.reset(XXH3_createState());
  if (writer->hash_ == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(writer->hash_.get());
  const std::string pattern = absl::StrCat(path.substr(0, path.rfind(".packed")), kPart, "XXXXXX");
  std::string name;
  writer->descriptor_ = CreateLocked(pattern, name);
  if (writer->descriptor_ < 0) return writer->Failed("create");
  writer->part_path_ = std::move(name);
  RIVULET_RETURN_IF_ERROR(writer->Reserve(bytes));
  writer->end_ = kPackedDataStart;
  return writer;
}

PackedFileWriter::~PackedFileWriter() {
  if (!part_path_.empty()) unlink(part_path_.c_str());
  if (descriptor_ >= 0) close(descriptor_);
}

// A full disk shows here, before others have lost its last bytes to us. Some file systems cannot
// tell.
absl::Status PackedFileWriter::Reserve(size_t bytes) {
  if (fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) == 0) {
    return absl::OkStatus();
  }
  const bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
  return full ? Failed("reserve the space for") : absl::OkStatus();
}

absl::StatusOr<uint64_t> PackedFileWriter::Append(std::span<const std::byte> data) {
  static constexpr std::array<std::byte, kPackedAlignment> kZeros = {};
  const size_t padding = (kPackedAlignment - end_ % kPackedAlignment) % kPackedAlignment;
  RIVULET_RETURN_IF_ERROR(WriteData({kZeros.data(), padding}));
  const uint64_t offset = end_;
  RIVULET_RETURN_IF_ERROR(WriteData(data));
  return offset;
}

// Up to a chunk's border at a time.
absl::Status PackedFileWriter::WriteData(std::span<const std::byte> data) {
  while (!data.empty()) {
    const auto piece = data.first(std::min(data.size(), kPackedChunk - hashed_));
    XXH3_64bits_update(hash_.get(), piece.data(), piece.size());
    RIVULET_RETURN_IF_ERROR(WriteAt(end_, piece.data(), piece.size()));
    end_ += piece.size();
    hashed_ += piece.size();
    if (hashed_ == kPackedChunk) EndData();
    data = data.subspan(piece.size());
  }
  return absl::OkStatus();
}

std::vector<uint64_t> PackedFileWriter::EndData() {
  if (hashed_ > 0) hashes_.push_back(XXH3_64bits_digest(hash_.get()));
  XXH3_64bits_reset(hash_.get());
  hashed_ = 0;
  return hashes_;
}

absl::Status PackedFileWriter::Finish(const std::string& table, const std::string& key) {
  PackedFileHeader header;
  std::copy_n(key.begin(), std::min(key.size(), header.key.size()), header.key.begin());
  header.table_offset = end_;
  header.table_bytes = table.size();
  header.table_hash = XXH3_64bits(table.data(), table.size());
  header.header_hash = HashOf(header);
  RIVULET_RETURN_IF_ERROR(WriteAt(end_, table.data(), table.size()));
  RIVULET_RETURN_IF_ERROR(WriteAt(0, &header, sizeof(header)));
  // Not synced: a file that a power cut left incomplete fails its checksums.
  if (std::rename(part_path_.c_str(), path_.c_str()) != 0) return Failed("rename");
  part_path_.clear();
  return absl::OkStatus();
}

absl::Status PackedFileWriter::WriteAt(uint64_t offset, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = pwrite(descriptor_, from, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Failed("write");
    from += written;
    offset += static_cast<uint64_t>(written);
    bytes -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status PackedFileWriter::Failed(const char* what) const {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path_));
}

void RemoveAbandoned(const std::string& directory) {
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string path = entry->path().string();
    if (!absl::StrContains(entry->path().filename().string(), kPart)) continue;
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) continue;
    const auto closer = absl::MakeCleanup([file] { close(file); });
    if (flock(file, LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
  }
}

}  // namespace rivulet
