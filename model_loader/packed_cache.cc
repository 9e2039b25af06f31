// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/packed_cache.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "model_loader/json.h"
#include "model_loader/packed_file.h"
#include "model_loader/packed_file_writer.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

// Before the names of tables of rows. No map's name begins so.
constexpr char kRows[] = "\n";

absl::Status Damaged(const std::string& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat(path, " is damaged: ", what));
}

// The header of a file of this key whose table lies within it.
absl::StatusOr<PackedFileHeader> ReadHeader(const MappedFile& file, const std::string& key) {
  const std::span<const uint8_t> bytes = file.bytes();
  PackedFileHeader header;
  if (bytes.size() < kPackedDataStart) return Damaged(file.path(), "it has no header");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != PackedFileHeader::kMagic || header.header_hash != HashOf(header)) {
    return Damaged(file.path(), "its header is not that of packed weights");
  }
  if (std::string(header.key.data(), header.key.size()) != key) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), " has the weights of another key"));
  }
  const bool fits = header.table_offset >= kPackedDataStart &&
                    header.table_offset <= bytes.size() &&
                    header.table_bytes == bytes.size() - header.table_offset;
  if (!fits) return Damaged(file.path(), "it is truncated");
  return header;
}

absl::StatusOr<nlohmann::json> ReadTable(const MappedFile& file, const PackedFileHeader& header) {
  const auto bytes = file.bytes().subspan(header.table_offset, header.table_bytes);
  if (HashBytes(bytes) != header.table_hash) return Damaged(file.path(), "its table has changed");
  return ParseJson({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.path());
}

// All data against its checksums, on all threads, with the disk ahead of them.
absl::Status CheckData(const MappedFile& file, std::span<const uint8_t> data,
                       const std::vector<uint64_t>& hashes, ThreadPool& pool) {
  const size_t chunks = (data.size() + kPackedChunk - 1) / kPackedChunk;
  if (hashes.size() != chunks) return Damaged(file.path(), "it lacks checksums");
  const auto chunk_at = [&](size_t i) {
    return data.subspan(i * kPackedChunk, std::min(kPackedChunk, data.size() - i * kPackedChunk));
  };
  std::atomic<size_t> wrong{chunks};
  pool.ParallelFor(chunks, [&](size_t i) {
    const size_t ahead = i + pool.threads();
    if (ahead < chunks) file.ReadAhead(chunk_at(ahead).data(), kPackedChunk);
    if (HashBytes(chunk_at(i)) != hashes[i]) wrong = i;
  });
  if (wrong == chunks) return absl::OkStatus();
  return Damaged(file.path(), absl::StrCat("the checksum of its data from byte ",
                                           kPackedDataStart + wrong * kPackedChunk, " is wrong"));
}

// A span of the file that a table names, which must be data on a border.
absl::StatusOr<std::span<const std::byte>> SpanAt(const MappedFile& file, uint64_t data_end,
                                                  const nlohmann::json& place) {
  const uint64_t offset = place.at(0).get<uint64_t>(), bytes = place.at(1).get<uint64_t>();
  const bool fits = offset >= kPackedDataStart && offset <= data_end &&
                    bytes <= data_end - offset && offset % kPackedAlignment == 0;
  if (!fits) return Damaged(file.path(), "its table points outside of its data");
  return std::as_bytes(file.bytes().subspan(offset, bytes));
}

std::optional<DType> DTypeCalled(const std::string& name) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    if (name == DTypeName(dtype)) return dtype;
  }
  return std::nullopt;
}

// One entry of the table; throws what its parser throws.
absl::StatusOr<PackedLinear> ReadMap(const std::shared_ptr<const MappedFile>& file,
                                     uint64_t data_end, const nlohmann::json& entry) {
  const auto dtype = DTypeCalled(entry.at("dtype").get<std::string>());
  if (!dtype.has_value()) return Damaged(file->path(), "its table has an unknown dtype");
  PackedLinear map;
  map.inputs = entry.at("inputs").get<size_t>();
  map.outputs = entry.at("outputs").get<size_t>();
  map.dtype = *dtype;
  map.owner = file;
  RIVULET_ASSIGN_OR_RETURN(map.panels, SpanAt(*file, data_end, entry.at("panels")));
  RIVULET_ASSIGN_OR_RETURN(map.bias, SpanAt(*file, data_end, entry.at("bias")));
  return map;
}

nlohmann::json Place(uint64_t offset, std::span<const std::byte> bytes) {
  return nlohmann::json::array({offset, bytes.size()});
}

bool HasPanels(const PackedLinear& packed) {
  const size_t padded = PaddedColumns(packed.outputs);
  return packed.panels.size() == padded * packed.inputs * DTypeSize(packed.dtype) &&
         (packed.bias.empty() || packed.bias.size() == padded * sizeof(float));
}

bool HasRows(const PackedLinear& packed) {
  return packed.panels.size() == packed.outputs * packed.inputs * DTypeSize(packed.dtype);
}

// The files' part of a key.
void HashFile(const MappedFile& file, XXH3_state_t* state) {
  const std::span<const uint8_t> bytes = file.bytes();
  const std::string name = std::filesystem::path(file.path()).filename().string();
  const std::string about =
      absl::StrCat(name, "\n", bytes.size(), "\n", file.changed_nanoseconds(), "\n");
  XXH3_128bits_update(state, about.data(), about.size());
  uint64_t header = 0;  // checked when the file was opened
  if (bytes.size() < sizeof(header)) return;
  std::memcpy(&header, bytes.data(), sizeof(header));
  XXH3_128bits_update(state, bytes.data(), std::min(bytes.size(), sizeof(header) + header));
}

}  // namespace

std::string PackedCacheKey(const SafetensorsCheckpoint& files, const std::string& how) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              &XXH3_freeState);
  if (state == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state.get());
  const std::string layout = absl::StrCat("packed weights ", kPackedLinearVersion, " ", kBlock,
                                          " little-endian\n", how, "\n");
  XXH3_128bits_update(state.get(), layout.data(), layout.size());
  for (const auto& file : files.files()) HashFile(*file, state.get());
  XXH128_canonical_t hash;
  XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(state.get()));
  return absl::BytesToHexString({reinterpret_cast<const char*>(hash.digest), sizeof(hash.digest)});
}

PackedCache::PackedCache(const std::string& directory, const std::string& key)
    : directory_(directory), key_(key), path_(absl::StrCat(directory, "/", key, ".packed")) {}

absl::Status PackedCache::Read(ThreadPool& pool) {
  RIVULET_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file, MappedFile::Open(path_));
  file_bytes_ = file->bytes().size();
  RIVULET_ASSIGN_OR_RETURN(maps_, ReadMaps(std::move(file), pool));
  return absl::OkStatus();
}

absl::StatusOr<PackedCache::Maps> PackedCache::ReadMaps(
    const std::shared_ptr<const MappedFile>& file, ThreadPool& pool) const {
  RIVULET_ASSIGN_OR_RETURN(const PackedFileHeader header, ReadHeader(*file, key_));
  RIVULET_ASSIGN_OR_RETURN(const nlohmann::json table, ReadTable(*file, header));
  const auto data = file->bytes().subspan(kPackedDataStart, header.table_offset - kPackedDataStart);
  Maps maps;
  try {  // the table's checksum is right, so only a file that was made to be wrong throws
    const auto hashes = table.at("checksums").get<std::vector<uint64_t>>();
    RIVULET_RETURN_IF_ERROR(CheckData(*file, data, hashes, pool));
    for (const nlohmann::json& entry : table.at("maps")) {
      RIVULET_ASSIGN_OR_RETURN(PackedLinear map, ReadMap(file, header.table_offset, entry));
      maps.emplace(entry.at("name").get<std::string>(), std::move(map));
    }
  } catch (const nlohmann::json::exception& error) {
    return Damaged(file->path(), error.what());
  }
  return maps;
}

std::optional<PackedLinear> PackedCache::Find(const std::string& name, size_t outputs,
                                              size_t inputs) const {
  const auto found = maps_.find(name);
  if (found == maps_.end()) return std::nullopt;
  const PackedLinear& packed = found->second;
  const bool same = packed.outputs == outputs && packed.inputs == inputs && HasPanels(packed);
  return same ? std::optional(packed) : std::nullopt;
}

std::optional<PackedLinear> PackedCache::FindRows(const std::string& name, size_t outputs,
                                                  size_t inputs) const {
  const auto found = maps_.find(kRows + name);
  if (found == maps_.end()) return std::nullopt;
  const PackedLinear& rows = found->second;
  const bool same = rows.outputs == outputs && rows.inputs == inputs && HasRows(rows);
  return same ? std::optional(rows) : std::nullopt;
}

void PackedCache::Add(const std::string& name, const PackedLinear& packed) {
  maps_.insert_or_assign(name, packed);
  changed_ = true;
}

void PackedCache::AddRows(const std::string& name, const PackedLinear& rows) {
  Add(kRows + name, rows);
}

absl::Status PackedCache::Write() const {
  std::error_code ignored;  // the file cannot be created then, which is said
  std::filesystem::create_directories(directory_, ignored);
  RemoveAbandoned(directory_);
  size_t bytes = kPackedDataStart;
  for (const auto& [name, map] : maps_) bytes += map.panels.size() + map.bias.size();
  RIVULET_ASSIGN_OR_RETURN(const auto writer, PackedFileWriter::Create(path_, bytes));
  nlohmann::json table = {{"maps", nlohmann::json::array()}};
  for (const auto& [name, map] : maps_) {
    RIVULET_ASSIGN_OR_RETURN(const uint64_t panels, writer->Append(map.panels));
    RIVULET_ASSIGN_OR_RETURN(const uint64_t bias, writer->Append(map.bias));
    table["maps"].push_back({{"name", name},
                             {"outputs", map.outputs},
                             {"inputs", map.inputs},
                             {"dtype", DTypeName(map.dtype)},
                             {"panels", Place(panels, map.panels)},
                             {"bias", Place(bias, map.bias)}});
  }
  table["checksums"] = writer->EndData();
  using Handler = nlohmann::json::error_handler_t;
  return writer->Finish(table.dump(-1, ' ', false, Handler::replace), key_);
}

}  // namespace rivulet
