// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the kernels of one token of each segment share (sums_decode.cu, sums_decode_channel.cuh):
// where the numbers of a block are.
#ifndef RIVULET_KERNELS_DEVICE_SUMS_DECODE_CUH_
#define RIVULET_KERNELS_DEVICE_SUMS_DECODE_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/sums.cuh"

namespace rivulet::cuda {

// A block has `values` value columns of one unit of one segment, a warp 16 of them.
class DecodeBlock {
 public:
  __device__ DecodeBlock(const RecurCall& call, uint32_t values)
      : c_(call),
        segment_(call.rows.segments[blockIdx.y]),
        values_(values),
        splits_((call.padded_value + values_ - 1) / values_),
        unit_(blockIdx.x / splits_),
        split_(blockIdx.x % splits_),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        g_(lane_ / 4),
        t_(lane_ % 4),
        key_tiles_(call.padded_key / 16),
        columns_(call.delta ? 2 : call.unit_heads) {}

 protected:
  __device__ uint32_t Column() const { return split_ * values_ + warp_ * 16; }
  __device__ uint32_t Tile(uint32_t kt) const { return Column() / 16 * key_tiles_ + kt; }
  // Of numbers of so many bytes.
  __device__ std::byte* Matrix(uint32_t slot, uint32_t number) const {
    const size_t bytes = size_t{c_.padded_key} * c_.padded_value * number;
    return c_.slots.bases + slot * c_.slots.base_stride + c_.state_offset + unit_ * bytes;
  }
  __device__ std::byte* Tail(size_t offset) const {
    return c_.slots.tails + segment_.tail * c_.slots.tail_stride + offset;
  }
  __device__ bf16* KeyRow(uint32_t place) const {
    return reinterpret_cast<bf16*>(Tail(c_.key_offset)) +
           (size_t{unit_ / c_.units_per_key} * kChunk + place) * c_.padded_key;
  }
  __device__ bf16* ValueRow(uint32_t place) const {
    return reinterpret_cast<bf16*>(Tail(c_.value_offset)) +
           (size_t{unit_ / c_.units_per_value} * kChunk + place) * c_.padded_value;
  }
  __device__ const float* Query(uint32_t head) const {
    const uint32_t index =
        c_.query_per_head ? unit_ * c_.unit_heads + head : unit_ / c_.units_per_key;
    return c_.q + size_t{Token()} * c_.q_stride + size_t{index} * c_.padded_key;
  }
  __device__ const float* Key() const {
    return c_.k + size_t{Token()} * c_.k_stride + size_t{unit_ / c_.units_per_key} * c_.padded_key;
  }
  __device__ const float* Value() const {
    return c_.v + size_t{Token()} * c_.v_stride +
           size_t{unit_ / c_.units_per_value} * c_.v_head_stride;
  }
  __device__ uint32_t Token() const { return segment_.first_token; }

  // Asks for the state of a block that has to wait for room on a processor, of numbers of so many
  // bytes.
  __device__ void FetchForLater(uint32_t resident, uint32_t number) const {
    const uint32_t block = blockIdx.x + blockIdx.y * gridDim.x, later = block + resident;
    if (block >= resident || later >= gridDim.x * gridDim.y) return;
    const DeviceSegment segment = c_.rows.segments[later / gridDim.x];
    if (segment.tokens == 0 || segment.position < kChunk) return;
    const uint32_t unit = later % gridDim.x / splits_, first = later % splits_ * values_;
    const size_t column = size_t{c_.padded_key} * number;
    const std::byte* base = c_.slots.bases + segment.base_in * c_.slots.base_stride;
    FetchToL2(base + c_.state_offset + (size_t{unit} * c_.padded_value + first) * column,
              static_cast<uint32_t>(min(values_, c_.padded_value - first) * column));
  }

  const RecurCall& c_;
  const DeviceSegment segment_;
  const uint32_t values_, splits_, unit_, split_, warp_, lane_, g_, t_, key_tiles_, columns_;
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUMS_DECODE_CUH_
