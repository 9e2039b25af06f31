// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The rings in shared memory through which products bring weights and tokens (held_tokens.cu,
// tens_of_tokens.cu, hundred_tokens.cu, fp8_tokens.cu). A slot has a stage: some boxes
// (tensor_copy.cuh) of the same columns.
#ifndef RIVULET_KERNELS_DEVICE_PRODUCT_RINGS_CUH_
#define RIVULET_KERNELS_DEVICE_PRODUCT_RINGS_CUH_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/device/launch.cuh"
#include "kernels/device/tensor_copy.cuh"

namespace rivulet::cuda {

// Of a processor; what is left is for small kernels beside a product.
constexpr size_t kSharedOfProduct = 204 << 10;
constexpr uint32_t kBoxAlignment = 1024;
constexpr uint32_t kMostWeightSlots = 40, kMostTokenSlots = 8;

// Those that say that a stage is empty follow those that say that it is full.
struct ProductBarriers {
  uint64_t weights_full[kMostWeightSlots], weights_empty[kMostWeightSlots];
  uint64_t tokens_full[kMostTokenSlots], tokens_empty[kMostTokenSlots];
  uint32_t ended;  // not 0: a warp has multiplied everything; only speed depends on it
};

// Of a block's shared memory, for its rings: beside them are barriers, the factors of 128 rows
// (product_outputs.cuh), and what every block needs.
constexpr size_t kFactorBytes = 128 * sizeof(float), kBlockReserve = 1024;
constexpr auto kRingRoom = static_cast<uint32_t>(
    kSharedOfProduct - kBoxAlignment - sizeof(ProductBarriers) - kFactorBytes - kBlockReserve);

constexpr uint32_t Parts(uint32_t x, uint32_t of) { return (x + of - 1) / of; }

struct RingSlots {
  uint32_t weights, tokens;
};

// Divides a processor's shared memory, of which the tokens' ring may have `of_tokens` bytes: slots
// for stages of so many bytes, of which a block has so many in all rounds.
inline RingSlots SlotsFor(uint32_t stages, uint32_t weight_bytes, uint32_t token_stages,
                          uint32_t token_bytes, uint32_t of_tokens) {
  const uint32_t tokens = std::min({kMostTokenSlots, of_tokens / token_bytes, token_stages});
  const uint32_t rest = kRingRoom - tokens * token_bytes;
  return {std::min({kMostWeightSlots, rest / weight_bytes, stages}), tokens};
}

// Stages of weights that are asked for and have not come: 40 KB, but at least `least`. With more,
// the kernels before this one wait longer for what they read.
inline uint32_t StagesOnTheWay(uint32_t weight_bytes, uint32_t weight_slots, uint32_t least = 2) {
  constexpr uint32_t kOnTheWay = 40 << 10;  // of a processor
  return std::min(std::max(kOnTheWay / weight_bytes, least), weight_slots);
}

// A reader's place in a ring: shared addresses of a stage and of the barrier that says that it is
// full.
struct RingPlace {
  uint32_t stage, barrier, parity;
  uint32_t first_stage, last_stage, first_barrier, stage_bytes;

  __device__ RingPlace(uint32_t memory, uint32_t bytes, uint32_t slots, const uint64_t* barriers)
      : stage(memory),
        barrier(SharedAddress(barriers)),
        parity(0),
        first_stage(memory),
        last_stage(memory + (slots - 1) * bytes),
        first_barrier(barrier),
        stage_bytes(bytes) {
    // In registers, or the compiler computes them anew for each stage.
    asm volatile("" : "+r"(first_stage), "+r"(last_stage), "+r"(first_barrier), "+r"(stage_bytes));
  }

  __device__ void Advance() {
    const bool wraps = stage == last_stage;
    stage = wraps ? first_stage : stage + stage_bytes;
    barrier = wraps ? first_barrier : barrier + sizeof(uint64_t);
    parity ^= wraps ? 1 : 0;
  }
};

// How the weights of a block come: for each of its rounds, stages of `inputs` columns.
struct WeightStages {
  uint32_t memory;      // of the ring, in shared memory
  uint32_t bytes;       // of a stage
  uint32_t slots;       // of the ring
  uint32_t inputs;      // of a stage
  uint32_t on_the_way;  // stages that are asked for and have not come; at most `slots`
  uint32_t rounds, count;

  // Those that are asked for before the block meets.
  __device__ uint32_t first() const { return min(on_the_way, count); }
};

// `output`: the first of the round's outputs.
__device__ inline void BringStage(const CUtensorMap& weights, const WeightStages& stages,
                                  ProductBarriers& barriers, uint32_t output, uint32_t stage,
                                  uint32_t slot, uint64_t policy) {
  ArriveExpecting(&barriers.weights_full[slot], stages.bytes);
  CopyBoxes(stages.memory + slot * stages.bytes, weights, output, stage * stages.inputs,
            &barriers.weights_full[slot], policy);
}

// By one thread, before anything else of the ring of weights, which so many warps read. Memory
// often has nothing to do when a product begins, so the first stages are asked for before anything
// that other threads do. A barrier of the block has to follow.
__device__ inline void StartWeights(const CUtensorMap& weights, const WeightStages& stages,
                                    ProductBarriers& barriers, uint32_t first_output,
                                    uint32_t readers) {
  FetchDescription(weights);
#pragma unroll 1
  for (uint32_t i = 0; i < stages.slots; ++i) {
    InitBarrier(&barriers.weights_full[i], 1);
    InitBarrier(&barriers.weights_empty[i], readers);
  }
  barriers.ended = 0;
  FenceBarrierInit();
  FenceBeforeBulkCopy();
  const uint64_t policy = ReadOnce();
#pragma unroll 1
  for (uint32_t i = 0; i < stages.first(); ++i) {
    BringStage(weights, stages, barriers, first_output, i, i, policy);
  }
}

// By one thread, before anything else of the ring of tokens, which so many warps of the cluster
// read. The cluster has to meet then, since one block copies into another.
__device__ inline void StartTokens(const CUtensorMap& tokens, ProductBarriers& barriers,
                                   uint32_t slots, uint32_t readers) {
#pragma unroll 1
  for (uint32_t i = 0; i < slots; ++i) {
    InitBarrier(&barriers.tokens_full[i], 1);
    InitBarrier(&barriers.tokens_empty[i], readers);
  }
  FenceBarrierInit();
  FetchDescription(tokens);
}

// By the thread that started the ring: the other stages. Weights do not depend on the kernel before
// this one. Only so many are on their way: the kernels before this one may still be running, and
// what they read would have to wait behind them. first_output(round): the first of the block's
// outputs.
template <typename FirstOutput>
__device__ inline void BringWeights(const CUtensorMap& weights, const WeightStages& stages,
                                    ProductBarriers& barriers, const FirstOutput& first_output) {
  const uint64_t policy = ReadOnce();
  Ring slot, arrived;
  uint32_t issued = stages.first();
#pragma unroll 1
  for (uint32_t i = 0; i < issued; ++i) slot.Advance(stages.slots);
#pragma unroll 1
  for (uint32_t round = 0; round < stages.rounds; ++round) {
#pragma unroll 1
    for (uint32_t stage = round == 0 ? issued : 0; stage < stages.count; ++stage, ++issued) {
      if (issued >= stages.on_the_way) {
        WaitBarrier(&barriers.weights_full[arrived.at], arrived.parity);
        arrived.Advance(stages.slots);
      }
      if (!slot.first_round) WaitBarrier(&barriers.weights_empty[slot.at], slot.parity ^ 1);
      BringStage(weights, stages, barriers, first_output(round), stage, slot.at, policy);
      slot.Advance(stages.slots);
    }
  }
}

// By a warp that has multiplied everything of its block.
__device__ inline void AnnounceEnd(ProductBarriers& barriers) {
  asm volatile("st.relaxed.cta.shared::cta.u32 [%0], 1;\n" ::"r"(SharedAddress(&barriers.ended))
               : "memory");
}
__device__ inline bool HasEnded(const ProductBarriers& barriers) {
  uint32_t ended;
  asm volatile("ld.relaxed.cta.shared::cta.u32 %0, [%1];\n"
               : "=r"(ended)
               : "r"(SharedAddress(&barriers.ended))
               : "memory");
  return ended != 0;
}

// By one warp of each block: asks for weights of the next product until this one has ended. The
// copy engine of a processor takes a microsecond for 20 KB of them, the warp waits for it, and the
// next product cannot begin before the block ends. So they are asked for in small pieces.
__device__ inline void FetchByWarp(const WeightsAhead& ahead, const ProductBarriers& barriers) {
  constexpr uint32_t kPiece = 1024;
  const uint32_t part = blockIdx.x * 32 + threadIdx.x % 32;
  ahead.ForEachRow(part, gridDim.x * 32, [&](const std::byte* row) {
#pragma unroll 1
    for (uint32_t at = 0; at < ahead.count; at += kPiece) {
      if (HasEnded(barriers)) return false;
      FetchToL2(row + at, min(kPiece, ahead.count - at));
    }
    return true;
  });
}

constexpr uint32_t kRingProducers = 2;  // warps: one that brings weights, one that brings tokens

// The warps of a block that copies tokens into the other blocks of its cluster, too: so many that
// multiply, one that brings weights and then asks for those of the next product, one that brings
// tokens, and others, which are counted from 0. multiply() calls EndChains.
template <typename Multiply, typename BringAll, typename BringTokens, typename DoOther>
__device__ inline void RunWarps(uint32_t multipliers, const WeightsAhead& ahead,
                                const ProductBarriers& barriers, const Multiply& multiply,
                                const BringAll& bring_weights, const BringTokens& bring_tokens,
                                const DoOther& do_other) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp < multipliers) {
    multiply();
  } else {
    if (warp == multipliers) {
      if (lane == 0) bring_weights();
      __syncwarp();
      FetchByWarp(ahead, barriers);  // behind all of this product's weights
    } else if (warp == multipliers + 1) {
      if (lane == 0) bring_tokens();
    } else {
      do_other(warp - multipliers - kRingProducers);
    }
    __syncwarp();
    ArriveInCluster();
  }
  AwaitCluster();  // a block must not end while another one copies into it
}
// By a warp that has multiplied everything of its block, before it writes outputs: nothing is
// copied into the block any more.
__device__ inline void EndChains(ProductBarriers& barriers) {
  AnnounceEnd(barriers);
  __syncwarp();
  ArriveInCluster();
}

// By a warp that has read a stage of weights, whose barrier that is. For this function and the next
// two: what was loaded from the stage has to be in registers (ZeroBehind).
__device__ inline void ReleaseWeights(uint32_t barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) Arrive(barrier + kMostWeightSlots * uint32_t{sizeof(uint64_t)});
}

// By a warp that has read a stage of tokens, behind a meeting of its lanes. All blocks of the
// cluster have to know of it, since theirs come from all. But not of slots that are not filled
// again: the other blocks may have ended when that would reach them.
__device__ inline void ReleaseTokens(uint32_t barrier, uint32_t blocks_of_cluster,
                                     bool are_filled_again) {
  const uint32_t lane = threadIdx.x % 32;
  if (lane < blocks_of_cluster && are_filled_again) {
    ArriveAt(barrier + kMostTokenSlots * uint32_t{sizeof(uint64_t)}, lane);
  }
}

// By a warp that has read a stage of both, whose barriers those are.
__device__ inline void ReleaseStage(uint32_t weight_barrier, uint32_t token_barrier,
                                    uint32_t blocks_of_cluster, bool tokens_are_filled_again) {
  ReleaseWeights(weight_barrier);
  ReleaseTokens(token_barrier, blocks_of_cluster, tokens_are_filled_again);
}

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_PRODUCT_RINGS_CUH_
