// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The tensors of a checkpoint, each checked against what the model expects, with a record of which
// were taken and of every problem. Ask Finish before using anything.
//
// Tensors that files carry and no model needs are ignored, not reported as extra:
//   *.rotary_emb.inv_freq, *.rotary.inv_freq   a buffer that older libraries stored
//   *.attn.D                                   of gated_deltanet before 2025-03
//                                              (docs/mixers.md#gated-deltanet)
//   lm_head.weight, when it is tied            the embeddings are used
//   what the format names (Finish)             parts that are not served, such as mtp.*
//
// The files' pages are given up as soon as their numbers were copied (DoneWith), so that a model is
// in memory once, and one map more.
//
// Threading: one thread, which may lend others.
#ifndef RIVULET_MODEL_LOADER_CHECKPOINT_READER_H_
#define RIVULET_MODEL_LOADER_CHECKPOINT_READER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/base/thread_pool.h"
#include "kernels/mixers/tensor_source.h"
#include "kernels/ops/embedding/embedding.h"
#include "model_loader/safetensors.h"

namespace rivulet {

class CheckpointReader : public TensorSource {
 public:
  // Borrows the checkpoint; views are valid as long as both. `pool`, which outlives this, helps to
  // check and copy numbers; null: the caller's thread does it.
  explicit CheckpointReader(const SafetensorsCheckpoint& checkpoint, ThreadPool* pool = nullptr)
      : checkpoint_(checkpoint), pool_(pool) {}

  // From now on names that begin with `from` stand for those of the file that begin with `to`
  // there. Empty: all names are the file's.
  void Rename(const std::string& from, const std::string& to);

  bool Has(const std::string& name) const override { return Stored(name) != nullptr; }
  // Empty if the tensor does not exist.
  std::vector<size_t> Shape(const std::string& name) const override;
  // None: it does not exist, or its numbers are of another type.
  std::optional<DType> Type(const std::string& name) const;
  TensorView Take(const std::string& name, const std::vector<size_t>& shape,
                  TensorUse use) override;

  // A view of the tensor [vocab, width], copied into `rows`: a served model must not depend on what
  // becomes of a mapped file (truncated under the server, it would end the process).
  EmbeddingTable TakeTable(const std::string& name, size_t vocab, size_t width,
                           AlignedBuffer<std::byte>& rows);

  void DoneWith(const void* data, size_t bytes) override;

  void Ignore(const std::string& name, const std::vector<size_t>& shape) override;

  // INVALID_ARGUMENT that names the problems, extra tensors among them; the first 20, then a count.
  // `ignored`: beginnings of names that are not extra.
  absl::Status Finish(const std::vector<std::string>& ignored = {});
  // The same without looking for extra tensors.
  absl::Status Problems() const;

  // The file's tensors whose names start so.
  size_t CountBeginning(const std::string& prefix) const;

  uint64_t parameters() const { return parameters_; }  // numbers taken, each tensor once
  size_t bytes_taken() const { return bytes_taken_; }

 private:
  // piece(first, bytes) for the pieces of a tensor, on several threads, in some order, while the
  // disk reads what follows. Pages of a large tensor are given up as it goes.
  void ForEachPiece(const StoredTensor& tensor, absl::FunctionRef<void(size_t, size_t)> piece);
  void ReadAhead(const uint8_t* at, size_t bytes);
  // The index of the first NaN or infinity.
  std::optional<size_t> FirstNotFinite(const StoredTensor& tensor, DType dtype);
  // What is wrong with the tensor; empty: nothing.
  std::string ProblemWith(const StoredTensor* tensor, const std::vector<size_t>& shape,
                          TensorUse use);
  // Null after recording the problem. kPacked: without a look at the numbers.
  const StoredTensor* Find(const std::string& name, const std::vector<size_t>& shape,
                           TensorUse use);
  TensorView Zeros(const std::vector<size_t>& shape);
  void AddProblem(const std::string& name, const std::string& problem);

  std::string InFile(const std::string& name) const;
  const StoredTensor* Stored(const std::string& name) const {
    return checkpoint_.Find(InFile(name));
  }

  const SafetensorsCheckpoint& checkpoint_;
  ThreadPool* const pool_;
  uintptr_t ahead_from_ = 0, ahead_to_ = 0;  // addresses that the disk was asked for
  std::string renamed_from_, renamed_to_;
  // A tensor's numbers are looked at once, when they are first needed.
  enum class Taken : uint8_t { kWrong, kUnread, kSound };
  std::map<std::string, Taken, std::less<>> taken_;
  std::vector<std::string> problems_;
  size_t problem_count_ = 0;
  std::deque<AlignedBuffer<float>> zeros_;  // in the place of what is missing
  size_t zero_count_ = 0;
  uint64_t parameters_ = 0;
  size_t bytes_taken_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_CHECKPOINT_READER_H_
