// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status.h"
#include "model_loader/json.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using WeightMap = std::map<std::string, std::string>;

constexpr size_t kLargestIndex = 100'000'000;

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

absl::Status NoWeights(const std::string& directory) {
  std::string remedy = "expected model.safetensors or model.safetensors.index.json";
  if (Exists(directory + "/pytorch_model.bin")) {
    remedy =
        "there is a pytorch_model.bin: convert it with model_loader/convert_mamba_ssm.py if it is "
        "one of mamba_ssm, and else with transformers (from_pretrained, then save_pretrained)";
  }
  return absl::NotFoundError(absl::StrCat(directory, " has no weights: ", remedy));
}

// The index's weight_map: tensor → name of the shard, which must be a plain file name.
absl::StatusOr<WeightMap> ReadWeightMap(const std::string& path) {
  RIVULET_ASSIGN_OR_RETURN(const nlohmann::json index, ReadJsonObject(path, kLargestIndex));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has no weight_map, expected {\"weight_map\": {tensor: file}}"));
  }
  WeightMap result;
  for (const auto& [tensor, file] : map->items()) {
    const std::string shard = file.is_string() ? file.get<std::string>() : "";
    if (shard.empty() || shard == "." || shard == ".." || shard.find('/') != std::string::npos ||
        shard.find('\0') != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": weight_map of ", tensor, " must be the name of a file in the same directory"));
    }
    result[tensor] = shard;
  }
  return result;
}

absl::Status CheckShards(const std::string& directory, const std::set<std::string>& shards) {
  constexpr size_t kMostNamed = 10;
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    if (!Exists(absl::StrCat(directory, "/", shard))) missing.push_back(shard);
  }
  if (missing.empty()) return absl::OkStatus();
  const size_t count = missing.size();
  missing.resize(std::min(count, kMostNamed));
  return absl::NotFoundError(
      absl::StrCat(count, " of ", shards.size(), " shards are missing in ", directory, ": ",
                   absl::StrJoin(missing, ", "), count > kMostNamed ? ", ..." : "",
                   "; the index lists them, so the download is not complete: run it again"));
}

// The index must list the tensor, as one of this shard.
absl::Status CheckListed(const std::string& path, const std::string& tensor,
                         const std::string& shard, const WeightMap& weight_map) {
  const auto listed = weight_map.find(tensor);
  if (listed != weight_map.end() && listed->second == shard) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      path, " has tensor ", tensor, ", but the index ",
      listed == weight_map.end() ? "does not list it" : "says it is in " + listed->second));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const SafetensorsCheckpoint>> SafetensorsCheckpoint::Open(
    const std::string& directory) {
  const std::string single = directory + "/model.safetensors";
  const std::string index = directory + "/model.safetensors.index.json";
  if (Exists(single)) return OpenFile(single);
  if (!Exists(index)) return NoWeights(directory);
  auto checkpoint = std::make_shared<SafetensorsCheckpoint>();
  RIVULET_RETURN_IF_ERROR(checkpoint->AddIndex(directory, index));
  return checkpoint;
}

absl::StatusOr<std::shared_ptr<const SafetensorsCheckpoint>> SafetensorsCheckpoint::OpenFile(
    const std::string& path) {
  auto checkpoint = std::make_shared<SafetensorsCheckpoint>();
  RIVULET_RETURN_IF_ERROR(checkpoint->AddFile(path));
  return checkpoint;
}

const StoredTensor* SafetensorsCheckpoint::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

size_t SafetensorsCheckpoint::bytes() const {
  size_t sum = 0;
  for (const auto& [name, tensor] : tensors_) sum += tensor.bytes;
  return sum;
}

void SafetensorsCheckpoint::ReadAhead(const uint8_t* data, size_t bytes) const {
  for (const auto& file : files_) file->ReadAhead(data, bytes);
}

void SafetensorsCheckpoint::GiveUp(const uint8_t* data, size_t bytes) const {
  for (const auto& file : files_) file->GiveUp(data, bytes);
}

absl::Status SafetensorsCheckpoint::CheckUnchanged() const {
  for (const auto& file : files_) RIVULET_RETURN_IF_ERROR(file->CheckUnchanged());
  return absl::OkStatus();
}

absl::Status SafetensorsCheckpoint::AddIndex(const std::string& directory,
                                             const std::string& index_path) {
  RIVULET_ASSIGN_OR_RETURN(const WeightMap weight_map, ReadWeightMap(index_path));
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : weight_map) shards.insert(shard);
  RIVULET_RETURN_IF_ERROR(CheckShards(directory, shards));
  for (const std::string& shard : shards) {
    RIVULET_RETURN_IF_ERROR(AddFile(absl::StrCat(directory, "/", shard), shard, &weight_map));
  }
  for (const auto& [tensor, shard] : weight_map) {
    if (Find(tensor) != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(index_path, " says that tensor ", tensor,
                                                   " is in ", shard, ", which does not have it"));
  }
  return absl::OkStatus();
}

absl::Status SafetensorsCheckpoint::AddFile(const std::string& path, const std::string& shard,
                                            const WeightMap* weight_map) {
  RIVULET_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  RIVULET_ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors,
                           ParseSafetensors(file->bytes(), path));
  files_.push_back(std::move(file));
  for (StoredTensor& tensor : tensors) {
    if (weight_map != nullptr)
      RIVULET_RETURN_IF_ERROR(CheckListed(path, tensor.name, shard, *weight_map));
    std::string name = tensor.name;
    tensors_.emplace(std::move(name), std::move(tensor));
  }
  return absl::OkStatus();
}

}  // namespace rivulet
