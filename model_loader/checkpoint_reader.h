// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Takes a model's tensors out of a checkpoint, checks each against what the model expects, packs
// it, and keeps account: which were taken, and every problem there was. A take that fails is
// answered with zeros of the expected shape (kernels/mixers/parameter_source.h), so that one load
// names all that is wrong; ask Finish before using anything.
//
// Tensors that files carry and no model needs are ignored, not reported as extra:
//   *.rotary_emb.inv_freq, *.rotary.inv_freq   a buffer that older libraries stored
//   *.attn.D                                   of gated_deltanet before 2025-03
//   (docs/mixers.md#gated-deltanet) lm_head.weight, when it is tied            the embeddings are
//   used what the format names (Finish)             parts that are not served, such as mtp.*
//
// Threading: one thread.
#ifndef RIVULET_MODEL_LOADER_CHECKPOINT_READER_H_
#define RIVULET_MODEL_LOADER_CHECKPOINT_READER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/base/dtype.h"
#include "kernels/mixers/parameter_source.h"
#include "kernels/ops/embedding/embedding.h"
#include "kernels/ops/linear/linear.h"
#include "model_loader/safetensors.h"

namespace rivulet {

class CheckpointReader {
 public:
  // Borrows the checkpoint. `weight_dtype` of packed maps; nullopt: bf16 where the file's is, else
  // fp32.
  CheckpointReader(const SafetensorsCheckpoint& checkpoint, std::optional<DType> weight_dtype)
      : checkpoint_(checkpoint), weight_dtype_(weight_dtype) {}

  bool Has(std::string_view name) const { return checkpoint_.Find(name) != nullptr; }
  // Empty when there is no such tensor.
  std::vector<size_t> Shape(std::string_view name) const;

  // As in ParameterSource, with whole names.
  AlignedBuffer<float> TakeVector(const std::string& name, const std::vector<size_t>& shape);
  Linear TakeLinear(const std::vector<LinearPart>& parts, size_t inputs);

  // A view of the tensor [vocab, width], copied into `rows`: a served model must not depend on what
  // becomes of a mapped file (truncated under the server, it would end the process).
  EmbeddingTable TakeTable(const std::string& name, size_t vocab, size_t width,
                           AlignedBuffer<std::byte>& rows);

  // Leaves out a tensor that may be there, when it has this shape.
  void Ignore(const std::string& name, const std::vector<size_t>& shape);

  // INVALID_ARGUMENT that names the problems, extra tensors among them; the first 20, then a count.
  // `ignored`: beginnings of names that are not extra.
  absl::Status Finish(const std::vector<std::string>& ignored = {});
  // The same without looking for extra tensors.
  absl::Status Problems() const;

  uint64_t parameters() const { return parameters_; }  // numbers taken, each tensor once
  size_t bytes_taken() const { return bytes_taken_; }
  // Of the packed maps so far: bf16 when all of them are.
  DType packed_dtype() const { return all_bf16_ ? DType::kBFloat16 : DType::kFloat32; }

 private:
  // Null after recording the problem.
  const StoredTensor* Take(const std::string& name, const std::vector<size_t>& shape);
  bool AllBFloat16(const std::vector<const StoredTensor*>& tensors) const;
  AlignedBuffer<float> Zeros(size_t count);
  void AddProblem(const std::string& name, const std::string& problem);

  const SafetensorsCheckpoint& checkpoint_;
  const std::optional<DType> weight_dtype_;
  std::map<std::string, bool, std::less<>> taken_;  // whether it is sound, so that it is read once
  std::vector<std::string> problems_;
  size_t problem_count_ = 0;
  size_t zeros_ = 0;
  uint64_t parameters_ = 0;
  size_t bytes_taken_ = 0;
  bool all_bf16_ = true;
};

// The tensors below `prefix`, as a mixer sees them. Borrows the reader.
class PrefixedParameters : public ParameterSource {
 public:
  PrefixedParameters(CheckpointReader& reader, std::string prefix)
      : reader_(reader), prefix_(std::move(prefix)) {}

  bool Has(std::string_view name) const override { return reader_.Has(Full(name)); }
  std::vector<size_t> Shape(std::string_view name) const override {
    return reader_.Shape(Full(name));
  }
  AlignedBuffer<float> TakeVector(std::string_view name,
                                  const std::vector<size_t>& shape) override {
    return reader_.TakeVector(Full(name), shape);
  }
  Linear TakeLinear(const std::vector<LinearPart>& parts, size_t inputs) override;
  void Ignore(std::string_view name, const std::vector<size_t>& shape) override {
    reader_.Ignore(Full(name), shape);
  }

 private:
  std::string Full(std::string_view name) const { return prefix_ + std::string(name); }

  CheckpointReader& reader_;
  const std::string prefix_;
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_CHECKPOINT_READER_H_
