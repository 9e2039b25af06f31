// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One token of each segment: what sums.cu does, with everything that need not wait started first,
// and with one barrier. The order of every sum is that of sums.cu, so the bits are the same.
//
// A block has up to 64 value columns of one unit, a warp 16 or 32 of them. A warp first asks for
// its part of the state and for the rows of the tail, which no kernel of this step writes; then it
// waits for the kernel before, and takes the token's own row.
//
// The first blocks rehearse (rehearsal.cuh): the instructions between the wait and the outputs are
// 10 KB, and without that the first blocks wait for each line.
//
// This is for many blocks: sums_decode_plain.cuh for the usual shape, sums_decode_many.cuh for the
// others. sums_decode_unit.cuh does it with few, where latency counts; sums_decode_channel.cuh does
// it where decays are by channel.
//
// Bytes expected: the state once, the tail's rows, and, for a row that ends a chunk, the state once
// more.
#include <algorithm>

#include "kernels/device/row_convolution.cuh"
#include "kernels/device/sums.cuh"
#include "kernels/device/sums_decode.cuh"
#include "kernels/device/sums_decode_channel.cuh"
#include "kernels/device/sums_decode_many.cuh"
#include "kernels/device/sums_decode_plain.cuh"
#include "kernels/device/sums_decode_unit.cuh"

namespace rivulet::cuda {
namespace {

// Blocks that share a processor.
constexpr int ResidentBlocks(bool bf16_state) { return bf16_state ? 6 : 4; }
// Of a processor. The first blocks ask for the state of those that come so much later. With bf16
// states, 32 rows of 2.7B were 1 % faster with four or five than with three, and no faster with
// six, though six have room (bench/results/device/h100/first_weights.txt). With fp32 states no more
// than three was measured.
constexpr int BlocksBesideProduct(bool bf16_state) { return ResidentBlocks(bf16_state) - 1; }

template <bool kBf16State, bool kNormaliser, bool kDelta>
__global__ void __launch_bounds__(kMostWarps * 32, ResidentBlocks(kBf16State))
    DecodeKernel(const __grid_constant__ RecurCall call,
                 const __grid_constant__ DecodeUnitGrid grid, uint32_t ahead) {
  extern __shared__ __align__(16) bf16 memory[];
  __builtin_assume(call.delta == kDelta);  // the compiler then leaves out the other's code
  AllowNextKernel();
  DecodeUnit<kBf16State, kNormaliser, kDelta>(call, grid, memory).Run(ahead);
}

// What CanPrepare asks of a call. The compiler then leaves out the rest.
__device__ inline void AssumePrepares(const RecurCall& call) {
  __builtin_assume(!call.delta);
  __builtin_assume(!call.query_per_head);
  __builtin_assume(call.gated.gate != nullptr);
  __builtin_assume(call.decay != Decay::kNone);
  __builtin_assume(call.constant == nullptr);
}

template <typename Form>
__global__ void __launch_bounds__(Form::kThreads, Form::kResident)
    PlainKernel(const __grid_constant__ RecurCall call, const __grid_constant__ PlainGrid grid) {
  extern __shared__ __align__(16) bf16 memory[];
  __builtin_assume(call.delta == Form::kDelta);
  const BlockClock clock = {};
  AllowNextKernel();
  DecodePlain<Form>(call, grid, clock, memory).Run();
}

__global__ void __launch_bounds__(PreparingPlainForm::kThreads, PreparingPlainForm::kResident)
    PreparingPlainKernel(const __grid_constant__ RecurCall call,
                         const __grid_constant__ UnpreparedRows rows,
                         const __grid_constant__ PlainGrid grid) {
  extern __shared__ __align__(16) bf16 memory[];
  AssumePrepares(call);
  const BlockClock clock = {};
  AllowNextKernel();
  DecodePlain<PreparingPlainForm>(call, grid, clock, memory, &rows).Run();
}

template <bool kBf16State>
__global__ void __launch_bounds__(kMostWarps * 32, ResidentBlocks(kBf16State))
    PreparingDecodeKernel(const __grid_constant__ RecurCall call,
                          const __grid_constant__ UnpreparedRows rows,
                          const __grid_constant__ DecodeUnitGrid grid, uint32_t ahead) {
  extern __shared__ __align__(16) bf16 memory[];
  AssumePrepares(call);
  AllowNextKernel();
  DecodeUnit<kBf16State, false, false, true>(call, grid, memory, &rows).Run(ahead);
}

// Of `splits` blocks a unit. About one block a processor rehearses, if there is time for it and
// segments are not more than processors. These are blocks of their own: one that has a segment
// waits with its state on the way to registers, which cannot be used before.
DecodeGrid GridOf(const RecurCall& call, uint32_t splits, const LaunchContext& context) {
  const auto processors = static_cast<uint32_t>(context.processors);
  return {*context.overlaps ? processors / call.rows.segment_count : 0, Divisor::Of(splits),
          Divisor::Of(call.units_per_key), Divisor::Of(call.units_per_value)};
}

// rows: as LaunchDecode. False: not of this kind. Rows beside fp32 states are prepared by
// PreparingDecodeKernel: this one took 2 to 4 % more with 32 to 64 rows of Mamba-2 130M.
template <bool kBf16State>
bool LaunchPlain(const RecurCall& call, const UnpreparedRows* rows, const LaunchContext& context) {
  using Sum = PlainForm<kBf16State, false>;
  using Delta = PlainForm<kBf16State, true>;
  if (!IsPlainSum(call) || (rows != nullptr && !kBf16State)) return false;
  const uint32_t splits = call.padded_value / Sum::kValues;
  PlainGrid grid = {GridOf(call, splits, context), 0};
  const dim3 all(call.rows.segment_count, call.units * splits + grid.rehearsing);
  const auto resident = static_cast<uint32_t>(Sum::kResident * context.processors);
  grid.early = grid.rehearsing + resident / call.rows.segment_count;
  const size_t shared = Sum::SharedBytes(call);
  if constexpr (kBf16State) {
    if (rows != nullptr) {
      context.Run(PreparingPlainKernel, all, Sum::kThreads, shared, call, *rows, grid);
      return true;
    }
  }
  if (call.delta) {
    context.Run(PlainKernel<Delta>, all, Sum::kThreads, shared, call, grid);
  } else {
    context.Run(PlainKernel<Sum>, all, Sum::kThreads, shared, call, grid);
  }
  return true;
}

// rows: as LaunchDecode.
template <bool kBf16State, bool kNormaliser, bool kDelta>
void Launch(const RecurCall& call, const UnpreparedRows* rows, const LaunchContext& context) {
  const uint32_t warps = WarpsOf(call, context.processors), values = warps * 16;
  const uint32_t splits = (call.padded_value + values - 1) / values, blocks = call.units * splits;
  const DecodeUnitGrid grid = {GridOf(call, splits, context), Divisor::Of(call.padded_key / 4),
                               Divisor::Of(call.padded_key / 8), Divisor::Of(values / 8)};
  const dim3 all(call.rows.segment_count, blocks + grid.rehearsing);
  const auto ahead = static_cast<uint32_t>(context.processors * BlocksBesideProduct(kBf16State));
  const uint32_t keys = call.padded_key, columns = call.delta ? 2 : call.unit_heads;
  if constexpr (!kNormaliser && !kDelta) {
    if (rows != nullptr) {
      return context.Run(PreparingDecodeKernel<kBf16State>, all, warps * 32,
                         DecodeUnit<kBf16State, false, false, true>::SharedBytes(keys, 1, values),
                         call, *rows, grid, ahead);
    }
  }
  context.Run(DecodeKernel<kBf16State, kNormaliser, kDelta>, all, warps * 32,
              DecodeUnit<kBf16State, kNormaliser, kDelta>::SharedBytes(keys, columns, values), call,
              grid, ahead);
}

// False: keys have too many numbers.
template <bool kBf16State>
bool LaunchForState(const RecurCall& call, const UnpreparedRows* rows,
                    const LaunchContext& context) {
  if (call.decay == Decay::kChannel) {
    LaunchDecodeByChannel<kBf16State>(call, context);
    return true;
  }
  const bool factors = call.gated.gate_factors != nullptr;  // which only the plain kernels apply
  if (!factors && LaunchDecodeByUnit<kBf16State>(call, rows, context)) return true;
  if (LaunchPlain<kBf16State>(call, rows, context)) return true;
  if (factors || call.padded_key > kHeldTiles * 16) return false;
  const auto launch = call.normaliser ? Launch<kBf16State, true, false>
                      : call.delta    ? Launch<kBf16State, false, true>
                                      : Launch<kBf16State, false, false>;
  launch(call, rows, context);
  return true;
}

}  // namespace

bool LaunchDecode(const RecurCall& call, const LaunchContext& context, const UnpreparedRows* rows) {
  const bool aligned = call.value_dim == call.padded_value && call.v_head_stride % 4 == 0 &&
                       call.v_stride % 4 == 0 && reinterpret_cast<uintptr_t>(call.v) % 16 == 0;
  const bool channel = call.decay == Decay::kChannel;
  const uint32_t columns = call.delta ? 2 : call.unit_heads;
  constexpr uint32_t kMostKeys = kHeldTiles * 16 * 2;
  if (!call.rows.single || !aligned || columns > kMostColumns || call.padded_key > kMostKeys ||
      (channel && (call.times_step || call.skip != nullptr)) ||
      (rows != nullptr && !CanGate(call))) {
    return false;
  }
  return call.bf16_state ? LaunchForState<true>(call, rows, context)
                         : LaunchForState<false>(call, rows, context);
}

}  // namespace rivulet::cuda
