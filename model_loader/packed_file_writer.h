// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Writes a file of packed weights (packed_file.h) under a temporary name, and gives it its own when
// it is complete. Private to this folder.
//
// While it is written, the file is locked (flock), which ends with the process. RemoveAbandoned
// knows by it which temporary files no process writes any more.
//
// Threading: one thread.
#ifndef RIVULET_MODEL_LOADER_PACKED_FILE_WRITER_H_
#define RIVULET_MODEL_LOADER_PACKED_FILE_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "xxhash.h"

namespace rivulet {

class PackedFileWriter {
 public:
  // A new file beside `path`, for about `bytes`: RESOURCE_EXHAUSTED at once where the disk says
  // that it has no room for them.
  static absl::StatusOr<std::unique_ptr<PackedFileWriter>> Create(const std::string& path,
                                                                  size_t bytes);
  // Removes the file unless Finish made it complete.
  ~PackedFileWriter();
  PackedFileWriter(const PackedFileWriter&) = delete;
  PackedFileWriter& operator=(const PackedFileWriter&) = delete;

  // Appends data on the next border and returns its offset in the file.
  absl::StatusOr<uint64_t> Append(std::span<const std::byte> data);
  // Ends the data. The checksums of its chunks, for the table.
  std::vector<uint64_t> EndData();
  // Writes table and header, and renames the file.
  absl::Status Finish(const std::string& table, const std::string& key);

 private:
  explicit PackedFileWriter(std::string path) : path_(std::move(path)) {}
  absl::Status Reserve(size_t bytes);
  absl::Status WriteData(std::span<const std::byte> data);
  absl::Status WriteAt(uint64_t offset, const void* data, size_t bytes);
  absl::Status Failed(const char* what) const;

  struct FreeHash {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };

  const std::string path_;
  std::string part_path_;  // empty: there is no file
  int descriptor_ = -1;
  uint64_t end_ = 0;
  std::unique_ptr<XXH3_state_t, FreeHash> hash_;  // of the chunk that is being written
  size_t hashed_ = 0;                             // its bytes so far
  std::vector<uint64_t> hashes_;                  // of those before
};

// Removes the directory's temporary files whose writers have died. Others are left alone, and so is
// what cannot be removed.
void RemoveAbandoned(const std::string& directory);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_PACKED_FILE_WRITER_H_
