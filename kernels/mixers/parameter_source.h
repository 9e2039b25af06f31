// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Where a mixer gets its trained numbers from: tensors of a TensorSource in the form in which the
// CPU computes with them. Another device has another class of this kind over the same sources.
//
// Failures: as in tensor_source.h. Threading: one thread. Everything handed out is owned by the
// receiver.
#ifndef RIVULET_KERNELS_MIXERS_PARAMETER_SOURCE_H_
#define RIVULET_KERNELS_MIXERS_PARAMETER_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/base/dtype.h"
#include "kernels/base/thread_pool.h"
#include "kernels/mixers/packed_store.h"
#include "kernels/mixers/tensor_source.h"
#include "kernels/ops/linear/linear.h"

namespace rivulet {

class Device;

// Blocks of adjacent rows at equal distances: rows first + i · stride + [0, block) for i = 0, 1,
// ...
struct RowBlocks {
  size_t tensor_rows = 0;  // of the whole tensor; 0: the map is all its rows, in order
  size_t first = 0;
  size_t block = 0;  // divides the map's outputs
  size_t stride = 0;
};

// One matrix of a concatenated linear map: tensor `name`, [outputs, inputs], as stored by PyTorch;
// or one of `stacked` matrices in a tensor [stacked, outputs, inputs]; or some rows of a tensor
// [rows.tensor_rows, inputs].
struct LinearPart {
  std::string name;
  size_t outputs = 0;
  std::string bias;    // tensor [outputs]; empty for none
  size_t stacked = 0;  // 0: the tensor is the matrix
  size_t index = 0;    // of this matrix in the stack
  RowBlocks rows = {};
};

// Packs linear maps for this machine.
class WeightPacker {
 public:
  // `dtype`: how weights rest. None: bf16 where all parts of a map are bf16, else fp32. kFloat8:
  // on a device alone.
  // `device`: which computes with the maps, and outlives them; null: the CPU.
  // `pool`: which packs for the CPU, and outlives this; null: the caller's thread does.
  explicit WeightPacker(std::optional<DType> dtype, Device* device = nullptr,
                        ThreadPool* pool = nullptr)
      : dtype_(dtype), device_(device), pool_(pool) {}

  // `name` is what the store knows the map by; empty: it is packed whether or not it is there.
  Linear Pack(const std::vector<LinearSource>& sources, size_t inputs,
              const std::string& name = "");
  // The same regardless of the dtype: fp32, or bf16 on a device.
  Linear PackRows(const std::vector<LinearSource>& sources, size_t inputs);

  // The map that was kept under this name, or null; and keeps one.
  const Linear* Kept(const std::string& name) const;
  void Keep(const std::string& name, const Linear& map) { kept_.insert_or_assign(name, map); }

  // From now on.
  void set_dtype(std::optional<DType> dtype) { dtype_ = dtype; }
  std::optional<DType> set_to() const { return dtype_; }

  // Where packed maps are looked up and added; outlives this. Null: nowhere. Not for a device.
  void set_store(PackedStore* store) { store_ = store; }
  bool Stores(const std::string& name, size_t outputs, size_t inputs) const {
    return store_ != nullptr && store_->Find(name, outputs, inputs).has_value();
  }

  // Not OK: the device had no room for a map, which has no weights then and must not be applied.
  const absl::Status& status() const { return status_; }
  bool on_device() const { return device_ != nullptr; }

  // fp8 when one map so far is, bf16 when all are.
  DType dtype() const {
    if (any_float8_) return DType::kFloat8;
    return all_bf16_ ? DType::kBFloat16 : DType::kFloat32;
  }
  // Of the maps so far.
  size_t bytes() const { return bytes_; }

 private:
  Linear PackOnCpu(const std::vector<LinearSource>& sources, size_t inputs, DType dtype,
                   const std::string& name);
  Linear PackOnDevice(const std::vector<LinearSource>& sources, size_t inputs, DType dtype);

  std::optional<DType> dtype_;
  Device* const device_;
  ThreadPool* const pool_;
  PackedStore* store_ = nullptr;
  absl::Status status_;
  std::map<std::string, Linear> kept_;
  bool all_bf16_ = true;
  bool any_float8_ = false;
  size_t bytes_ = 0;
};

class ParameterSource {
 public:
  // Borrows both. Names are relative to `prefix`: "q_proj.weight" below "model.layers.0.attn.".
  ParameterSource(TensorSource& tensors, WeightPacker& packer, std::string prefix = "")
      : tensors_(&tensors), packer_(&packer), prefix_(std::move(prefix)) {}

  bool Has(std::string_view name) const { return tensors_->Has(Full(name)); }
  std::vector<size_t> Shape(std::string_view name) const { return tensors_->Shape(Full(name)); }

  // All elements as fp32, row-major, exactly as stored, from a tensor of any dtype.
  // [product of shape] floats.
  AlignedBuffer<float> TakeVector(std::string_view name, const std::vector<size_t>& shape);

  // Several maps of one input as one packed map, outputs concatenated in the order given.
  Linear TakeLinear(const std::vector<LinearPart>& parts, size_t inputs);
  // The same in bf16 where others are fp8: of a map whose outputs are compared with each other, as
  // a router's are.
  Linear TakeRouter(const std::vector<LinearPart>& parts, size_t inputs);

  // Numbers in memory as one packed map, which is never rounded to fp8; on the CPU it is fp32.
  Linear PackRows(const std::vector<LinearSource>& sources, size_t inputs) {
    return packer_->PackRows(sources, inputs);
  }

  // The same tensors below another prefix, as a file names them.
  ParameterSource At(std::string prefix) const {
    ParameterSource other = *this;
    other.prefix_ = std::move(prefix);
    return other;
  }
  ParameterSource Below(std::string_view name) const { return At(Full(name)); }
  // A source of the same whose linear maps are packed once and shared by all who take them.
  ParameterSource Sharing() const {
    ParameterSource other = *this;
    other.shares_ = true;
    return other;
  }

  // Whether maps are packed on a device (Linear::OnDevice).
  bool packs_on_device() const { return packer_->on_device(); }

  void Ignore(std::string_view name, const std::vector<size_t>& shape) {
    tensors_->Ignore(Full(name), shape);
  }

 private:
  Linear PackLinear(const std::vector<LinearPart>& parts, size_t inputs);
  std::string NameOf(const std::vector<LinearPart>& parts) const;
  AlignedBuffer<float> Take(std::string_view name, const std::vector<size_t>& shape, TensorUse use);
  std::string Full(std::string_view name) const { return prefix_ + std::string(name); }

  TensorSource* tensors_;
  WeightPacker* packer_;
  std::string prefix_;
  bool shares_ = false;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_PARAMETER_SOURCE_H_
