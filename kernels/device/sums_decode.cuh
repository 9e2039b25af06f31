// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the kernels of one token of each segment share (sums_decode.cu, sums_decode_plain.cuh,
// sums_decode_many.cuh, sums_decode_unit.cuh, sums_decode_channel.cuh): where the numbers of a
// block are, and how a warp makes its outputs from its reads and the scores.
#ifndef RIVULET_KERNELS_DEVICE_SUMS_DECODE_CUH_
#define RIVULET_KERNELS_DEVICE_SUMS_DECODE_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/gated_outputs.cuh"
#include "kernels/device/rehearsal.cuh"
#include "kernels/device/shared_work.cuh"
#include "kernels/device/sums.cuh"

namespace rivulet::cuda {

// Blocks of `values` value columns each.
inline uint32_t DecodeBlocks(const RecurCall& call, uint32_t values) {
  return call.units * call.rows.segment_count * ((call.padded_value + values - 1) / values);
}

// Value columns of a block, at most `most`. What blocks of a unit compute for themselves takes
// about as long as reading 16 columns, or longer, so a block has fewer only where more than a
// quarter of the processors would be without work otherwise.
inline uint32_t DecodeValues(const RecurCall& call, uint32_t most, int processors) {
  uint32_t values = most;
  while (values > 16 && values / 2 >= call.padded_value) values /= 2;
  const auto enough = static_cast<uint32_t>(processors) * 3 / 4;
  while (values > 16 && DecodeBlocks(call, values) < enough) values /= 2;
  return values;
}

// Which values of which unit of which segment a block has, and whose keys and values the unit
// shares.
struct DecodePlace {
  uint32_t segment, splits, unit, split, key_unit, value_unit;
};

// Of a launch of many blocks. The grid's x is the segment, its y a block of the segment behind the
// rows that rehearse. A fold takes about as long as the rest of a block's work, and this way the
// blocks of a segment that folds are mostly on different processors.
struct DecodeGrid {
  uint32_t rehearsing;       // rows of the grid, in front of the others
  Divisor of_unit;           // blocks
  Divisor of_key, of_value;  // units
};

// A block has `values` value columns of one unit of one segment, a warp 16 of them, or more.
class DecodeBlock {
 public:
  __device__ DecodeBlock(const RecurCall& call, uint32_t values)
      : DecodeBlock(call, values, PlaceOf(call, values)) {}

 protected:
  // `warp`: the number of the warp or, where a warp has several tiles of 16 columns, of its first.
  __device__ DecodeBlock(const RecurCall& call, uint32_t values, const DecodePlace& place,
                         uint32_t warp = threadIdx.x / 32)
      : c_(call),
        segment_(call.rows.segments[place.segment]),
        values_(values),
        splits_(place.splits),
        unit_(place.unit),
        split_(place.split),
        key_unit_(place.key_unit),
        value_unit_(place.value_unit),
        warp_(warp),
        lane_(threadIdx.x % 32),
        g_(lane_ / 4),
        t_(lane_ % 4),
        key_tiles_(call.padded_key / 16),
        columns_(call.delta ? 2 : call.unit_heads) {}

  __device__ static DecodePlace PlaceOf(const RecurCall& call, uint32_t values) {
    const uint32_t splits = (call.padded_value + values - 1) / values, unit = blockIdx.x / splits;
    return {blockIdx.y,
            splits,
            unit,
            blockIdx.x % splits,
            unit / call.units_per_key,
            unit / call.units_per_value};
  }
  __device__ static DecodePlace PlaceOf(const DecodeGrid& grid) {
    const uint32_t row = max(blockIdx.y, grid.rehearsing) - grid.rehearsing;
    const uint32_t unit = Over(row, grid.of_unit), splits = grid.of_unit.divisor;
    return {blockIdx.x,
            splits,
            unit,
            row - unit * splits,
            Over(unit, grid.of_key),
            Over(unit, grid.of_value)};
  }
  // Whether the block does not rehearse. Found out anew each time: no register is left for it.
  __device__ static bool IsReal(const DecodeGrid& grid) {
    uint32_t row;
    asm volatile("mov.u32 %0, %ctaid.y;" : "=r"(row));
    return row >= grid.rehearsing;
  }

  // Whether this block keeps the token's key, and its values, in the tail.
  __device__ bool KeepsKey() const { return split_ == 0 && key_unit_ * c_.units_per_key == unit_; }
  __device__ bool KeepsValues() const { return value_unit_ * c_.units_per_value == unit_; }

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
           (size_t{key_unit_} * kChunk + place) * c_.padded_key;
  }
  __device__ bf16* ValueRow(uint32_t place) const {
    return reinterpret_cast<bf16*>(Tail(c_.value_offset)) +
           (size_t{value_unit_} * kChunk + place) * c_.padded_value;
  }
  __device__ float* DecayRow() const {
    return reinterpret_cast<float*>(Tail(c_.decay_offset)) + size_t{unit_} * kChunk;
  }
  __device__ const float* Query(uint32_t head) const {
    const uint32_t index = c_.query_per_head ? unit_ * c_.unit_heads + head : key_unit_;
    return c_.q + size_t{Token()} * c_.q_stride + size_t{index} * c_.padded_key;
  }
  __device__ const float* Key() const {
    return c_.k + size_t{Token()} * c_.k_stride + size_t{key_unit_} * c_.padded_key;
  }
  __device__ const float* Value() const {
    return c_.v + size_t{Token()} * c_.v_stride + size_t{value_unit_} * c_.v_head_stride;
  }
  __device__ uint32_t Token() const { return segment_.first_token; }

  // Whether the token has a decay of its own, by unit or by channel.
  __device__ bool TakesDecay() const { return c_.decay != Decay::kNone && c_.constant == nullptr; }

  // Gated outputs are of one query (CanGate): lanes t = 0 have those of value columns g and g + 8.
  // Lanes t = 0 and t = 1 gate one each.
  __device__ bool Gates() const { return c_.gated.gate != nullptr; }
  __device__ bool HasGate() const { return Gates() && t_ < 2; }
  __device__ uint32_t GatedColumn() const { return unit_ * c_.value_dim + Column() + g_ + t_ * 8; }
  __device__ const float* GateAt() const {
    return c_.gated.gate + size_t{Token()} * c_.gated.gate_stride + GatedColumn();
  }
  // Gates the lane's output x, and stores it.
  __device__ void WriteGated(float x, float gate, float weight, bool stores) const {
    x *= Silu(gate);
    const float squares = SquaresOf<4, 1>(x, t_ == 1);
    asm volatile("" ::"f"(squares), "f"(weight));  // in a rehearsal, too
    if (t_ > 1 || !stores) return;
    const uint32_t column = GatedColumn();
    StoreOperand(c_.gated.y, Token(), column, x * weight);
    if (lane_ == 0) StoreSquares(c_.gated, Token(), column, squares);
  }
  // The lane's output, of those that lanes t = 0 have in columns g and g + 8.
  __device__ float OwnOutput(float near, float far) const {
    far = __shfl_up_sync(0xffffffffu, far, 1);
    return t_ == 0 ? near : far;
  }

  // Asks for the state of another block, one of those of segment `row`, of numbers of so many
  // bytes.
  __device__ void FetchState(uint32_t row, uint32_t block, uint32_t number) const {
    const DeviceSegment segment = c_.rows.segments[row];
    if (segment.tokens == 0 || segment.position < kChunk) return;
    const uint32_t unit = block / splits_, first = block % splits_ * values_;
    const size_t column = size_t{c_.padded_key} * number;
    const std::byte* base = c_.slots.bases + segment.base_in * c_.slots.base_stride;
    FetchToL2(base + c_.state_offset + (size_t{unit} * c_.padded_value + first) * column,
              static_cast<uint32_t>(min(values_, c_.padded_value - first) * column));
  }

  const RecurCall& c_;
  const DeviceSegment segment_;
  const uint32_t values_, splits_, unit_, split_, key_unit_, value_unit_;
  const uint32_t warp_, lane_, g_, t_, key_tiles_, columns_;
};

// A block whose scores are in shared memory before its warps make their outputs from them.
class DecodeReader : public DecodeBlock {
 protected:
  static constexpr uint32_t kScoreStride = kChunk + kPad;
  // Of the tail's rows in the two value columns that a lane solves for: pairs of bf16.
  using Solved = uint32_t[kChunk - 1];

  // v, state: where values bf16 [C, values + pad] and the tiles of the state are in `memory`.
  __device__ DecodeReader(const RecurCall& call, uint32_t values, std::byte* memory, uint32_t v,
                          uint32_t state)
      : DecodeBlock(call, values),
        memory_(memory),
        v_(v),
        state_(state),
        first_(split_ * values),
        width_(min(values, call.padded_value - first_)),
        reads_(warp_ * 16 < width_),
        dv_(values + kPad) {}

  template <typename T>
  __device__ T* At(uint32_t offset) const {
    return reinterpret_cast<T*>(memory_ + nothing_ + offset);
  }
  // Addresses in shared memory are worked out again where they are used from here on. There is no
  // room for all of them in registers, where the compiler would keep them from before a rehearsal.
  __device__ void ForgetAddresses() { asm volatile("" : "+r"(nothing_)); }

  // Value columns of warp `warp`, as a matrix of LoadTransposed.
  __device__ const bf16* Values(uint32_t warp) const {
    return At<bf16>(v_) + (lane_ % 8 + (lane_ >= 16 ? 8 : 0)) * dv_ + warp * 16 + lane_ / 8 % 2 * 8;
  }

  // The block's tiles, in the background; numbers of so many bytes.
  template <uint32_t kNumber>
  __device__ void CopyState() const {
    if (fresh_) return;
    const uint32_t column = c_.padded_key * kNumber, bytes = width_ * column;
    const std::byte* from = Matrix(segment_.base_in, kNumber) + size_t{first_} * column;
#pragma unroll 4
    for (uint32_t i = threadIdx.x * 16; i < bytes; i += blockDim.x * 16) {
      CopyAsync(At<std::byte>(state_) + i, from + i);
    }
  }

  // Where the outputs go. The first column of a delta rule is its key, which has no output.
  __device__ float* Outputs() const {
    const int64_t head = c_.delta ? int64_t{unit_} - 1 : int64_t{unit_} * c_.unit_heads;
    return c_.out.data + size_t{Token()} * c_.out.stride + (head + 2 * t_) * c_.padded_value +
           first_ + warp_ * 16 + g_;
  }

  __device__ const float* Beta() const {
    return c_.beta + size_t{Token()} * c_.beta_stride + unit_;
  }
  // Of the token, in the two value columns that the lane solves for or writes; of gated outputs in
  // one, and its gate.
  __device__ void TakeValues() {
    values_now_[0] = ReadLate(v_at_);
    values_now_[1] = ReadLate(v_at_ + second_at_);
  }

  // The solved values of the tail's rows in columns g and g + 8.
  __device__ void LoadSolved(Solved& rows) const {
    const uint16_t* column = At<uint16_t>(v_) + warp_ * 16 + g_;
#pragma unroll
    for (uint32_t s = 0; s < kChunk - 1; ++s) {
      rows[s] = column[s * dv_] | uint32_t{column[s * dv_ + 8]} << 16;
    }
  }

  // u = β (v - k S̄ - Σ_{s<place} score(s) u_s), scores fp32 [C] at `at`. Lanes of column 0 have
  // k S̄ of value columns g and g + 8. From the token's row on, values and scores are zeros, whose
  // products are -0 and change no bit of u.
  __device__ void Solve(const float (&sum)[4], const Solved& rows, uint32_t at) {
    float u[2] = {values_now_[0] - sum[0], values_now_[1] - sum[2]};
    float4 scores[kChunk / 4];
#pragma unroll
    for (uint32_t i = 0; i < kChunk / 4; ++i) scores[i] = At<float4>(at)[i];
#pragma unroll
    for (uint32_t s = 0; s < kChunk - 1; ++s) {
      const float weight = -reinterpret_cast<const float(&)[kChunk]>(scores)[s];
      u[0] = fmaf(weight, FirstOf(rows[s]), u[0]);
      u[1] = fmaf(weight, SecondOf(rows[s]), u[1]);
    }
    if (t_ == 0) {
      bf16* column = At<bf16>(v_) + place_ * dv_ + warp_ * 16 + g_;
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        const bf16 stored = __float2bfloat16_rn(beta_ * u[half]);
        column[half * 8] = real_ ? stored : __float2bfloat16_rn(0.0f);
        if (real_) keeps_v_[half * 8] = stored;
      }
    }
    __syncwarp();
  }

  // sum += the tail's values · scores, bf16 [columns, C + pad] at `at`.
  __device__ void ReadTail(float (&sum)[4], uint32_t at) const {
    uint32_t v[4];
    LoadTransposed(v, Values(warp_));
    const bool present = g_ < columns_;
    const bf16* score = At<bf16>(at) + g_ * kScoreStride + 2 * t_;
    MultiplyAdd(sum, v, Two(score, present), Two(score + 8, present));
  }

  // Of column 2t + next.
  __device__ void Write(uint32_t next, uint32_t half, float x) const {
    const uint32_t column = 2 * t_ + next;
    if (column >= columns_ || (c_.delta && column == 0)) return;
    asm volatile("" ::"f"(x));  // computed in a rehearsal, too
    if (real_) to_[next * c_.padded_value + half * 8] = x;
  }

  std::byte* const memory_;
  const uint32_t v_, state_;
  const uint32_t first_, width_;  // value columns of the block
  const bool reads_;
  const uint32_t dv_;
  uint32_t place_ = 0, nothing_ = 0;
  bool fresh_ = false, real_ = false;  // real: not a rehearsal
  // Of the token, and where it is kept in the tail; null: not by this block.
  const float* v_at_ = nullptr;
  int64_t second_at_ = 8;  // from v_at_ on: the second value column, or the gate
  float* to_ = nullptr;
  bf16* keeps_v_ = nullptr;
  float beta_ = 0.0f, values_now_[2] = {};
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUMS_DECODE_CUH_
