// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Linear map y = x Wᵀ + b with weights packed for this machine. Most of a model's bytes are read
// here.
//
// Bits (docs/architecture.md#bit-equality): y[t, n] is one chain of fused multiply-adds over the
// inputs, ascending, starting from zero, then the bias is added. It does not depend on the
// number of tokens, the thread count, the vector width, or the other rows of the batch. Library
// products do not guarantee this: oneDNN and BLAS choose their summation order by the number of
// rows.
//
// Layout: panels of 16 outputs, [outputs / 16][inputs][16], so that vector lanes run over outputs.
// Outputs are padded to a multiple of 16 with zero weights.
//
// Threading: constant after Pack; Apply may be called from several threads with different outputs,
// as long as each passes a pool that no other call is using.
#ifndef RIVULET_KERNELS_OPS_LINEAR_LINEAR_H_
#define RIVULET_KERNELS_OPS_LINEAR_LINEAR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/dtype.h"
#include "kernels/base/linear_source.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/device/device_types.h"

namespace rivulet {

class Device;

// A map's packed weights as they lie in memory, to be kept elsewhere and used again.
struct PackedLinear {
  size_t inputs = 0;
  size_t outputs = 0;
  DType dtype = DType::kFloat32;      // kFloat32 or kBFloat16
  std::span<const std::byte> panels;  // as above, on a 64-byte border
  std::span<const std::byte> bias;    // fp32 [padded outputs] on a 64-byte border, or empty
  std::shared_ptr<const void> owner;  // keeps both in memory
};

// Of the layout above. It changes with it, so that weights that were kept are packed anew.
inline constexpr uint32_t kPackedLinearVersion = 1;

// A copy shares the packed weights, which never change.
class Linear {
 public:
  Linear() = default;  // an empty map; inputs() == outputs() == 0

  // Concatenates the sources' outputs in order. `dtype` is how weights are stored: kFloat32 (exact
  // for every source) or kBFloat16 (exact for bf16 sources, rounded to nearest even for others).
  // Copies the sources, which need not outlive the call. On the threads of `pool`; null: on this
  // one.
  static Linear Pack(const std::vector<LinearSource>& sources, size_t inputs, DType dtype,
                     ThreadPool* pool = nullptr);

  // The map of weights that Pack made once: the same bits. REQUIRES: the sizes fit each other.
  static Linear FromPacked(const PackedLinear& packed);
  // REQUIRES: not on a device.
  PackedLinear packed() const;

  // A map whose weights are packed on a device (Device::Pack) and which only Enqueue applies.
  static Linear OnDevice(const DeviceLinear& packed, DType dtype);

  // The product in device memory: y [T, outputs] of x [T, inputs].
  void Enqueue(Device& device, const Operand& x, FloatMatrix y) const;
  // REQUIRES: made by OnDevice, or empty.
  const DeviceLinear& on_device() const { return device_; }

  size_t inputs() const { return inputs_; }
  size_t outputs() const { return outputs_; }
  DType dtype() const { return dtype_; }
  // Bytes read from memory by one Apply, regardless of the number of tokens.
  size_t weight_bytes() const;

  // y [T, outputs] = x [T, inputs] Wᵀ + b. x and y must not overlap. Exactly `outputs` columns of a
  // row are written, so y may be some columns of a wider matrix. Neither needs alignment or
  // padding.
  void Apply(ConstFloatMatrix x, FloatMatrix y, ThreadPool& pool) const;

  // Apply in pieces, for a caller that runs those of several maps as one parallel loop: all of
  // Pieces(T) of them, in any order and on any threads, do what Apply does.
  size_t Pieces(size_t rows) const;
  void ApplyPiece(ConstFloatMatrix x, FloatMatrix y, size_t piece) const;

  // Multiply-adds or bytes of weights, whichever is more, and how many of them are worth handing to
  // a pool. One core reads 15 to 40 bytes in a nanosecond from memory, and a thread that is still
  // looking for work (thread_pool.cc) takes about one microsecond to find it. Chosen by
  // measurement: docs/performance.md.
  size_t Cost(size_t rows) const;
  static constexpr size_t kWorthSharing = 150'000;

 private:
  size_t inputs_ = 0;
  size_t outputs_ = 0;
  DType dtype_ = DType::kFloat32;
  // Of dtype_; `owner_` keeps both.
  std::span<const std::byte> panels_;
  std::span<const std::byte> bias_;
  std::shared_ptr<const void> owner_;
  DeviceLinear device_;  // empty on the CPU
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_LINEAR_LINEAR_H_
