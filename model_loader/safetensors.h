// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The weights of a checkpoint directory: model.safetensors, or the shards that
// model.safetensors.index.json lists, mapped and checked (safetensors_header.h). Of the two the
// single file counts, as in transformers.
//
// It does not know what the tensors are for. Threading: constant after Open.
#ifndef RIVULET_MODEL_LOADER_SAFETENSORS_H_
#define RIVULET_MODEL_LOADER_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model_loader/mapped_file.h"
#include "model_loader/safetensors_header.h"

namespace rivulet {

class SafetensorsCheckpoint {
 public:
  using Tensors = std::map<std::string, StoredTensor, std::less<>>;

  // NOT_FOUND names what is missing, and the converter where only a PyTorch file is there. An index
  // must agree with its shards in both directions: every tensor in the shard that it names, and no
  // other.
  static absl::StatusOr<std::shared_ptr<const SafetensorsCheckpoint>> Open(
      const std::string& directory);
  // One file by its path.
  static absl::StatusOr<std::shared_ptr<const SafetensorsCheckpoint>> OpenFile(
      const std::string& path);

  // Null if the tensor does not exist. Valid as long as the checkpoint.
  const StoredTensor* Find(std::string_view name) const;
  const Tensors& tensors() const { return tensors_; }  // by name
  size_t bytes() const;                                // of all tensors
  const std::vector<std::unique_ptr<MappedFile>>& files() const { return files_; }

  // Hints about bytes of a tensor (mapped_file.h). Other addresses are ignored. Any thread.
  void ReadAhead(const uint8_t* data, size_t bytes) const;
  void GiveUp(const uint8_t* data, size_t bytes) const;

  // DATA_LOSS when a file was changed since Open (mapped_file.h).
  absl::Status CheckUnchanged() const;

 private:
  absl::Status AddIndex(const std::string& directory, const std::string& index_path);
  // With a weight map, the file's tensors must be those that it lists for `shard`.
  absl::Status AddFile(const std::string& path, const std::string& shard = "",
                       const std::map<std::string, std::string>* weight_map = nullptr);

  std::vector<std::unique_ptr<MappedFile>> files_;
  Tensors tensors_;
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_SAFETENSORS_H_
