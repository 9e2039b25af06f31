// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One token of each of many segments: what sums_decode.cu does, at the speed at which the states
// can be read. A piece of work is some value columns of one unit of one segment; pieces in a row
// that share keys and queries form a group. A block takes runs of pieces. One of its warps
// (Producer) brings the states of one piece after the other into a ring of stages in shared memory,
// another (NumberWarp) the tail's values and the token's numbers, one or several (KeyWarp) bring
// and prepare what a group shares, and the others (Consumer) read and fold the states. Several
// blocks share a processor, so that it also reads while one of them waits. The order of every sum
// is that of sums.cu, so the bits are the same.
//
// Bytes expected: the state once, the tail's rows, and, for a row that ends a chunk, the state once
// more.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/device/long_runs.h"
#include "kernels/device/sums_stream.cuh"
#include "kernels/device/sums_stream_consumer.cuh"
#include "kernels/device/sums_stream_keys.cuh"
#include "kernels/device/sums_stream_numbers.cuh"
#include "kernels/device/sums_stream_producer.cuh"

namespace rivulet::cuda {
namespace {

// Pieces of a block, at least. Alone this kernel is faster than sums_decode.cu from two on. In
// steps of few rows it is slower, since its blocks fill a processor's shared memory, which the next
// product needs to ask for its weights early. What is said of rows and pieces was measured with
// keys of 128 and decays by unit (up to 14 pieces); other keys and decays have the limits from
// before sums_decode.cu became faster with those. sums_decode_plain.cuh with bf16 states is faster
// for more rows than the others: with 80 units 64 rows take 3 % less, 96 rows 1 % more; with 24
// units 128 rows take 3 % less, 256 rows 1 % more. With more than 64 rows and a delta rule it was
// not measured but at 128, where it is slower.
uint32_t LeastPieces(const RecurCall& call) {
  const bool measured = call.decay != Decay::kChannel && call.padded_key <= kHeldTiles * 16;
  const bool plain = call.bf16_state && IsPlainSum(call);
  const uint32_t few_rows = plain ? 64 : measured ? 48 : 32;
  if (call.rows.segment_count > few_rows) return plain && !call.delta ? 6 : 2;
  return measured ? 16 : 6;
}

constexpr uint32_t kBarrierBytes = 256;
static_assert(sizeof(StreamBarriers) <= kBarrierBytes);

// Of a block: consumers, those that prepare keys, NumberWarp and the producer.
template <typename Form>
constexpr uint32_t Threads(uint32_t consumers) {
  return (consumers + Form::kKeyWarps + 2) * 32;
}

template <typename Form>
__device__ void InitBarriers(StreamBarriers& barriers, const StreamLayout& layout) {
  for (uint32_t s = 0; s < layout.stages; ++s) {
    InitBarrier(&barriers.begun[s], 1);
    InitBarrier(&barriers.full[s], 1 + 32);  // the producer, and all lanes of NumberWarp
    InitBarrier(&barriers.empty[s], layout.warps);
  }
  for (uint32_t k = 0; k < kKeyBuffers; ++k) {
    InitBarrier(&barriers.key_begun[k], 1);
    InitBarrier(&barriers.key_copied[k], Form::kKeyWarps * 32);
    InitBarrier(&barriers.key_full[k], Form::kKeyWarps);
    InitBarrier(&barriers.key_empty[k], layout.warps);
  }
  FenceBarrierInit();
}

template <typename Form>
__global__ void __launch_bounds__(Threads<Form>(kMostConsumers), Form::kMostBlocks)
    StreamKernel(const __grid_constant__ RecurCall call,
                 const __grid_constant__ StreamLayout layout, NextWeights next, uint32_t* taken) {
  extern __shared__ __align__(128) std::byte memory[];
  AllowNextKernel();
  if (threadIdx.x == 0) InitBarriers<Form>(*reinterpret_cast<StreamBarriers*>(memory), layout);
  __syncthreads();
  const uint32_t warp = threadIdx.x / 32;
  if (warp < layout.warps) {
    Consumer<Form>(call, layout, memory).Run();
  } else if (warp < layout.warps + Form::kKeyWarps) {
    KeyWarp<Form>(call, layout, memory, warp - layout.warps).Run();
  } else if (warp == layout.warps + Form::kKeyWarps) {
    NumberWarp<Form>(call, layout, memory).Run();
  } else {
    Producer<Form>(call, layout, memory, taken).Run();
    FetchShare(next.weights, next.bytes, threadIdx.x % 32, 32);  // while other blocks still run
  }
}

// --- the division of the work --------------------------------------------------------------------

void LayOutStage(const RecurCall& call, StreamLayout& layout) {
  Taker stage(layout.values * call.padded_key * (call.bf16_state ? 2 : 4));
  layout.v = stage.Take(kChunk * (layout.values + kPad) * 2);
  layout.token_v = stage.Take(layout.values * 4);
  layout.skip = stage.Take(layout.values * 4);
  const uint32_t gates = call.gated.gate == nullptr ? 0 : layout.values * 4;
  layout.gate = stage.Take(gates);
  layout.weight = stage.Take(gates);
  layout.step = stage.Take(16);
  layout.rate = stage.Take(16);
  layout.beta = stage.Take(16);
  layout.decay = stage.Take(kChunk * 4);
  layout.header = stage.Take(sizeof(StageHeader));
  layout.stage_bytes = stage.Aligned();
}

void LayOutKeys(const RecurCall& call, StreamLayout& layout) {
  const uint32_t row = (call.padded_key + kPad) * 2;
  const bool channel = call.decay == Decay::kChannel;
  Taker keys(kChunk * row);
  layout.q = keys.Take(layout.columns * row);
  layout.token_k = keys.Take(call.padded_key * 4);
  layout.token_q = keys.Take(layout.queries * call.padded_key * 4);
  layout.scores = keys.Take(channel ? layout.columns * (kChunk + kPad) * 2 : 32 * 16);
  layout.state_decay = keys.Take(channel ? call.padded_key * 4 : 0);
  layout.key_scores = keys.Take(channel ? kChunk * 4 : 0);
  layout.key_header = keys.Take(sizeof(StageHeader));
  layout.key_bytes = keys.Aligned();
}

// Pieces of `values` columns.
StreamLayout LayoutFor(const RecurCall& call, uint32_t values, uint32_t warps) {
  StreamLayout layout = {};
  layout.values = values;
  layout.warps = warps;
  layout.value_shift = values == 16 ? 1 : values == 32 ? 2 : 3;
  layout.splits = (call.padded_value + values - 1) / values;
  const bool alike = !call.query_per_head &&
                     (call.decay != Decay::kChannel || call.units_per_decay == call.units_per_key);
  layout.group = layout.splits * (alike ? call.units_per_key : 1);
  layout.pieces = call.rows.segment_count * call.units * layout.splits;
  layout.of_segment = Divisor::Of(call.units * layout.splits);
  layout.of_unit = Divisor::Of(layout.splits);
  layout.of_group = Divisor::Of(layout.group);
  layout.of_key = Divisor::Of(call.units_per_key);
  layout.columns = call.delta ? 2 : call.unit_heads;
  layout.queries = call.delta ? 1 : call.unit_heads;
  LayOutStage(call, layout);
  LayOutKeys(call, layout);
  layout.keys = kBarrierBytes;
  layout.first_stage = layout.keys + kKeyBuffers * layout.key_bytes;
  return layout;
}

// Divides what each of so many blocks has of a processor's memory. False: not enough for two
// stages.
bool Fits(StreamLayout& layout, uint32_t blocks) {
  const uint32_t room = kSharedOfBlocks / blocks - kSharedReserve;
  if (room < layout.first_stage + 2 * layout.stage_bytes) return false;
  layout.stages = std::min(kMostStages, (room - layout.first_stage) / layout.stage_bytes);
  layout.bytes = layout.first_stage + layout.stages * layout.stage_bytes;
  return true;
}

// Forms whose keys take long to prepare, with decays by channel, and which were measured to be
// faster with few short runs and a given second one: KDA with fp32 states, and GLA.
template <typename Form>
constexpr bool kLongPreparation = Form::kChannel && (Form::kTiles == 1 || Form::kKeyTiles > 8);

// Whether a block with so many pieces is given its second run. With decays by unit a block with
// more pieces does not gain: Mamba-2 took 1 % longer. KDA with bf16 states took up to 8 % longer.
template <typename Form>
constexpr bool GivesSecondRun(uint32_t each) {
  return Form::kChannel ? kLongPreparation<Form> : each < 9;
}

// Divides the pieces into runs for so many blocks. A run prepares its keys anew; short runs at the
// end keep the blocks equally busy. Keys with decays by channel take long to prepare, so there long
// runs have more pieces and short ones have two, and where that was measured there are fewer short
// ones. False: so few pieces that sums_decode.cu is faster.
template <typename Form>
bool DivideWork(const RecurCall& call, uint32_t blocks, StreamLayout& layout) {
  constexpr bool kChannel = Form::kChannel;
  const uint32_t each = layout.pieces / blocks;
  if (each < LeastPieces(call)) return false;
  // The numbers of units, groups and keys are smaller.
  if (!layout.of_segment.Serves(layout.pieces)) return false;
  const uint32_t run = kChannel && each < 4 ? 1 : each < 16 ? 2 : kChannel || each < 32 ? 4 : 8;
  layout.run = std::min(layout.group, kChannel ? 2 * run : run);
  layout.short_run = kChannel ? std::min(layout.run, 2u) : 1;
  layout.long_runs = kLongPreparation<Form> ? MostLongRuns(layout.pieces, layout.run, blocks)
                                            : layout.pieces / layout.run / 4 * 3;
  const uint32_t rest = layout.pieces - layout.long_runs * layout.run;
  layout.runs = layout.long_runs + (rest + layout.short_run - 1) / layout.short_run;
  layout.given = GivesSecondRun<Form>(each) ? MostGiven(layout.runs, blocks) : 1;
  return true;
}

template <typename Form>
bool Launch(const RecurCall& call, const NextWeights& next, const LaunchContext& context) {
  constexpr uint32_t kColumns = Form::kTiles * 16;  // of a warp
  const uint32_t warps = call.padded_value > kColumns ? kMostConsumers : 1;
  StreamLayout layout = LayoutFor(call, warps * kColumns, warps);
  uint32_t shared_by = Form::kMostBlocks;
  while (shared_by > 0 && !Fits(layout, shared_by)) --shared_by;
  const uint32_t blocks = shared_by * static_cast<uint32_t>(context.processors);
  if (blocks == 0 || !DivideWork<Form>(call, blocks, layout)) return false;
  static const cudaError_t prepared = AllowAllShared(StreamKernel<Form>);
  context.Check(prepared);
  context.Run(StreamKernel<Form>, dim3(std::min(layout.runs, blocks)), Threads<Form>(warps),
              layout.bytes, call, layout, call.gated.gate == nullptr ? NextWeights() : next,
              context.counter);
  return true;
}

template <bool kBf16State, int kKeyTiles>
bool LaunchForDecay(const RecurCall& call, const NextWeights& next, const LaunchContext& context) {
  return call.decay == Decay::kChannel
             ? Launch<StreamForm<kBf16State, kKeyTiles, true>>(call, next, context)
             : Launch<StreamForm<kBf16State, kKeyTiles, false>>(call, next, context);
}

template <bool kBf16State>
bool LaunchForKey(const RecurCall& call, const NextWeights& next, const LaunchContext& context) {
  if (call.padded_key == 64) return LaunchForDecay<kBf16State, 4>(call, next, context);
  if (call.padded_key == 128) return LaunchForDecay<kBf16State, 8>(call, next, context);
  return call.padded_key == 256 && LaunchForDecay<kBf16State, 16>(call, next, context);
}

// Whether copies of 16 bytes may start at multiples of four of the rows' numbers.
bool Aligned(const float* numbers, uint32_t stride) {
  return reinterpret_cast<uintptr_t>(numbers) % 16 == 0 && stride % 4 == 0;
}

bool Streams(const RecurCall& call) {
  const bool aligned = call.value_dim == call.padded_value && call.v_head_stride % 4 == 0 &&
                       Aligned(call.k, call.k_stride) && Aligned(call.q, call.q_stride) &&
                       Aligned(call.v, call.v_stride) && Aligned(call.g, call.g_stride) &&
                       Aligned(call.beta, call.beta_stride) &&
                       Aligned(call.gated.gate, call.gated.gate_stride);
  const bool channel = call.decay == Decay::kChannel;
  return call.rows.single && !call.normaliser && aligned && !(channel && call.times_step) &&
         (call.delta ? 2 : call.unit_heads) <= kMostColumns;
}

}  // namespace

bool LaunchStream(const RecurCall& call, const NextWeights& next, const LaunchContext& context) {
  if (!Streams(call)) return false;
  return call.bf16_state ? LaunchForKey<true>(call, next, context)
                         : LaunchForKey<false>(call, next, context);
}

}  // namespace rivulet::cuda
