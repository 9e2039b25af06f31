// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The bytes of a file of packed weights (packed_cache.h). Private to this folder.
#ifndef RIVULET_MODEL_LOADER_PACKED_FILE_H_
#define RIVULET_MODEL_LOADER_PACKED_FILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "xxhash.h"

namespace rivulet {

// At the start of the file, in a page of its own.
struct PackedFileHeader {
  std::array<char, 8> magic = kMagic;
  std::array<char, 32> key = {};
  uint64_t table_offset = 0;  // data is between the page and it
  uint64_t table_bytes = 0;   // to the file's end
  uint64_t table_hash = 0;
  uint64_t header_hash = 0;  // of what stands above

  static constexpr std::array<char, 8> kMagic = {'R', 'V', 'P', 'A', 'C', 'K', '0', '1'};
};
static_assert(sizeof(PackedFileHeader) == 72);

inline constexpr size_t kPackedDataStart = 4096;
// As AlignedBuffer's: cache lines, and the vectors that kernels load.
inline constexpr size_t kPackedAlignment = 64;
// The data that one checksum is of.
inline constexpr size_t kPackedChunk = size_t{16} << 20;

inline uint64_t HashBytes(std::span<const uint8_t> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

inline uint64_t HashOf(const PackedFileHeader& header) {
  return XXH3_64bits(&header, offsetof(PackedFileHeader, header_hash));
}

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_PACKED_FILE_H_
