// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a step on a device lends to one layer, and the memory for its temporaries.
//
// Threading: engine thread only.
#ifndef RIVULET_KERNELS_DEVICE_DEVICE_STEP_H_
#define RIVULET_KERNELS_DEVICE_DEVICE_STEP_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/check.h"
#include "kernels/device/device.h"
#include "kernels/device/device_operations.h"

namespace rivulet {

// Temporaries in device memory: what Workspace is on the host. Take never moves earlier results;
// they are valid until Reset. Memory is allocated when more is taken than ever before, so after the
// largest step nothing is.
class DeviceWorkspace {
 public:
  explicit DeviceWorkspace(Device* device) : device_(device) {}

  FloatMatrix Take(size_t rows, size_t columns) {
    const size_t stride = PaddedColumns(columns);
    return {static_cast<float*>(TakeBytes(ProductRows(rows) * stride * sizeof(float))), rows,
            columns, stride};
  }

  // An operand of the device's precision; `columns` is rounded up, and the device's operations fill
  // the padding with zeros.
  Operand TakeOperand(size_t rows, size_t columns) {
    const bool two = device_->precision() == ProductPrecision::kFloat32;
    const size_t padded = PaddedColumns(columns), stride = padded * (two ? 2 : 1);
    return {static_cast<uint16_t*>(TakeBytes(ProductRows(rows) * stride * sizeof(uint16_t))),
            static_cast<uint32_t>(rows), static_cast<uint32_t>(padded),
            static_cast<uint32_t>(stride), two};
  }

  void* TakeBytes(size_t bytes) {
    bytes = RoundUp(bytes, kStep);
    while (next_ < blocks_.size() && used_ + bytes > blocks_[next_].bytes) {
      ++next_;
      used_ = 0;
    }
    if (next_ == blocks_.size()) AddBlock(bytes);
    void* result = blocks_[next_].data + used_;
    used_ += bytes;
    return result;
  }

  void Reset() { ReturnTo({}); }

  // How far memory is taken. After ReturnTo, everything that was taken before the mark counts as
  // taken again: a recording holds its addresses.
  struct Mark {
    size_t next = 0, used = 0;
  };
  Mark mark() const { return {next_, used_}; }
  void ReturnTo(const Mark& mark) {
    next_ = mark.next;
    used_ = mark.used;
  }

  // Not OK: the device had no memory for a block. What was taken since is in host memory, which is
  // the device's until it is destroyed; the engine must not start with it.
  const absl::Status& status() const { return status_; }

 private:
  struct Block {
    std::byte* data;
    size_t bytes;
  };
  static constexpr size_t kStep = 256;
  static constexpr size_t kMinimum = size_t{8} << 20;

  void AddBlock(size_t bytes) {
    bytes = bytes > kMinimum ? bytes : kMinimum;
    const absl::StatusOr<void*> memory = device_->Allocate(bytes);
    if (!memory.ok()) {
      // Operations that are enqueued before the caller looks at the status need some memory, and
      // they reach the host's, too.
      status_.Update(memory.status());
      void* const instead = device_->AllocatePinned(bytes);
      RIVULET_CHECK(instead != nullptr, "neither device nor host memory for temporaries");
      blocks_.push_back({static_cast<std::byte*>(instead), bytes});
    } else {
      blocks_.push_back({static_cast<std::byte*>(*memory), bytes});
      Clear(blocks_.back());
    }
    used_ = 0;
  }

  // Kernels read rows that nothing has written, whose results nothing uses: of segments without
  // tokens, and while they rehearse. What they read should not be what another process left.
  void Clear(const Block& block) {
    const std::vector<std::byte> zeros(kMinimum);
    for (size_t at = 0; at < block.bytes && status_.ok(); at += kMinimum) {
      const size_t left = block.bytes - at;
      status_ = device_->Upload(block.data + at, zeros.data(), left < kMinimum ? left : kMinimum);
    }
  }

  Device* device_;
  std::deque<Block> blocks_;
  size_t next_ = 0;
  size_t used_ = 0;
  absl::Status status_;
};

// The residual stream and the norm of what comes next, for a layer's last map (AddProductCall).
struct ResidualSum {
  FloatMatrix x;
  LateNorm norm;
  RowFactor left = {};  // of that norm, after Enqueue: it comes after the map that reads norm.y
};

struct DeviceStep {
  Device* device;
  DeviceWorkspace* workspace;  // the caller resets it after the layer
  DeviceRows rows;
  DeviceSlots slots;       // this layer's part
  DevicePages pages = {};  // of this layer's kind; empty without pages
  // Of a mixer that reads the residual stream and the tokens' embeddings [T, 2 · hidden], whose
  // operand is empty.
  FloatMatrix stream = {};
  // As LayerStep::handed_on.
  FloatMatrix handed_on = {};
  // Of a mixer that takes an input without its norm's factor (Mixer::takes_factor).
  RowFactor input_factor = {};
  // Such a mixer adds its output to this instead of storing it, and sets `left`; null: it stores.
  ResidualSum* sum = nullptr;
  // Where a layer that norms the input of its last map may leave the rows' factors to what reads
  // its output; null: it may not. What they point to is the workspace's.
  RowFactor* output_factor = nullptr;
  // The output of the layer is not read: it may advance the state and leave out the rest.
  bool state_only = false;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_DEVICE_STEP_H_
