// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Packed weights in a file, DIR/KEY.packed, which the next load of the same weights maps instead of
// packing them again.
//
//   header (one page): magic, key, where the table is, sizes, checksums
//   data: the maps, each on a 64-byte border
//   table (JSON): name, sizes and place of each map; the checksum of every 16 MiB of data
//
// The key is a hash of what the maps depend on (PackedCacheKey), so files of other models, dtypes
// and versions have other names. Checksums find damage: a file that is truncated, damaged or not
// ours is reported and written anew. They do not find forgery: who may write into the directory may
// change the model.
//
// A file is written under another name and renamed when it is complete, so readers see all of it or
// none, and several servers may start at once. What a killed writer left is removed by the next
// one. Old files are not: another server may use them.
//
// The file is mapped for as long as its maps are used. As with any mapped file, it may be replaced
// or removed meanwhile, but not written to (mapped_file.h).
//
// Threading: one thread, which may lend others.
#ifndef RIVULET_MODEL_LOADER_PACKED_CACHE_H_
#define RIVULET_MODEL_LOADER_PACKED_CACHE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "kernels/base/thread_pool.h"
#include "kernels/mixers/packed_store.h"
#include "model_loader/safetensors.h"

namespace rivulet {

// 32 hexadecimal digits, from the names, sizes, modification times and headers of the files, the
// layout of packed weights, and `how`: everything else that decides what is packed.
std::string PackedCacheKey(const SafetensorsCheckpoint& files, const std::string& how);

class PackedCache : public PackedStore {
 public:
  PackedCache(const std::string& directory, const std::string& key);

  // Maps the file and checks all of it. OK: its maps are found from now on. NOT_FOUND: there is no
  // file. Else it cannot be used, and the status says why.
  absl::Status Read(ThreadPool& pool);

  std::optional<PackedLinear> Find(const std::string& name, size_t outputs,
                                   size_t inputs) const override;
  void Add(const std::string& name, const PackedLinear& packed) override;

  // The same for a table of rows, [outputs][inputs] instead of panels, in a name space of its own.
  std::optional<PackedLinear> FindRows(const std::string& name, size_t outputs,
                                       size_t inputs) const;
  void AddRows(const std::string& name, const PackedLinear& rows);

  // Whether something was added that the file does not have.
  bool changed() const { return changed_; }
  // Writes everything that was found or added. After a failure (no room, no permission) the
  // directory has what it had.
  absl::Status Write() const;

  const std::string& path() const { return path_; }
  uint64_t file_bytes() const { return file_bytes_; }  // that Read found; 0: no file

 private:
  using Maps = std::map<std::string, PackedLinear, std::less<>>;

  absl::StatusOr<Maps> ReadMaps(const std::shared_ptr<const MappedFile>& file,
                                ThreadPool& pool) const;

  const std::string directory_, key_, path_;
  Maps maps_;
  uint64_t file_bytes_ = 0;
  bool changed_ = false;
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_PACKED_CACHE_H_
