// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The warpgroup's matrix instruction (PTX ISA, wgmma): sum [64 tokens, 8 · tiles outputs] += tokens
// [64, 16] · weights [outputs, 16]ᵀ, bf16 operands in shared memory as boxes (tensor_copy.cuh),
// fp32 sums in registers. Four warps issue it together. A chain of these has the bits of a chain of
// `mma.sync` (docs/gpu_notes.md#chains-of-few-outputs).
//
// Lane l of warp w has tokens 16w + l/4 and 8 more, and of each tile of outputs 2(l%4) and the
// next: sum[4·tile + 2·(second token) + (second output)].
#ifndef RIVULET_KERNELS_DEVICE_WARPGROUP_PRODUCT_CUH_
#define RIVULET_KERNELS_DEVICE_WARPGROUP_PRODUCT_CUH_

#include <cstdint>

#include "kernels/device/arithmetic.cuh"

namespace rivulet::cuda {

// Where an operand of k16 begins, as the instruction takes it: the address and the distances of its
// parts. Moving it changes only the lower half, so a step costs one addition of 32 bits. A warp
// issues its instructions in order, and additions of 64 bits between two matrix instructions took
// longer than these (docs/gpu_notes.md#what-lies-between-matrix-instructions).
struct MatrixOperand {
  uint32_t low, high;

  // `sixteens`: of bytes.
  __device__ MatrixOperand operator+(uint32_t sixteens) const { return {low + sixteens, high}; }
};

// Of a box's address in shared memory plus 32 bytes for each k16 step. Chunks are exchanged as in a
// box. Groups of 8 rows follow each other at so many bytes.
__device__ inline MatrixOperand BoxOperand(uint32_t shared, uint32_t group_distance = 1024) {
  constexpr uint32_t kExchangedBy128 = 1u << 30, kUnused = 1u << 16;
  return {SameInWarp(kUnused | (shared & 0x3ffff) >> 4), kExchangedBy128 | group_distance / 16};
}

// The same for an operand of a few rows whose chunks are not exchanged: the 16 bytes of
// neighbouring rows lie side by side, and chunks of one row are `chunk_distance` bytes apart, a
// multiple of 16. All groups of 8 rows lie at the same place. Adding n · chunk_distance / 16 moves
// by n chunks. Behind the last chunk the instruction reads 112 bytes more.
__device__ inline MatrixOperand NarrowOperand(uint32_t shared, uint32_t chunk_distance) {
  return {SameInWarp(chunk_distance / 16 << 16 | (shared & 0x3ffff) >> 4), 0};
}

// 16 bytes of an operand.
__device__ inline void StoreShared(uint32_t address, uint4 x) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};\n" ::"r"(address), "r"(x.x), "r"(x.y),
               "r"(x.z), "r"(x.w)
               : "memory");
}

// What this warp has written to registers and shared memory comes before the instructions that
// follow. Needed before the first one, and after other writes to the sums.
__device__ inline void BeginProducts() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
// The instructions since the last call form a group.
__device__ inline void EndProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
// Waits until at most so many groups have not ended.
template <int kGroups>
__device__ inline void AwaitProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kGroups) : "memory");
}

// Waits for all of them, and keeps the compiler from copying sums before that: it does not know
// that they are still being written (docs/gpu_notes.md#fp8-weights).
template <int kSums>
__device__ inline void AwaitSums(float (&sum)[kSums]) {
  AwaitProducts<0>();
#pragma unroll
  for (float& x : sum) asm volatile("" : "+f"(x)::"memory");
}

template <int kTiles>
struct WarpgroupProduct;

// The operands of the instruction with so many tiles: registers %0 to %(4 · tiles - 1).
#define RIVULET_NAMES_1 "%0, %1, %2, %3"
#define RIVULET_NAMES_2 RIVULET_NAMES_1 ", %4, %5, %6, %7"
#define RIVULET_NAMES_3 RIVULET_NAMES_2 ", %8, %9, %10, %11"
#define RIVULET_NAMES_4 RIVULET_NAMES_3 ", %12, %13, %14, %15"
#define RIVULET_NAMES_5 RIVULET_NAMES_4 ", %16, %17, %18, %19"
#define RIVULET_NAMES_6 RIVULET_NAMES_5 ", %20, %21, %22, %23"
#define RIVULET_NAMES_7 RIVULET_NAMES_6 ", %24, %25, %26, %27"
#define RIVULET_NAMES_8 RIVULET_NAMES_7 ", %28, %29, %30, %31"
#define RIVULET_NAMES_9 RIVULET_NAMES_8 ", %32, %33, %34, %35"
#define RIVULET_NAMES_10 RIVULET_NAMES_9 ", %36, %37, %38, %39"
#define RIVULET_NAMES_11 RIVULET_NAMES_10 ", %40, %41, %42, %43"
#define RIVULET_NAMES_12 RIVULET_NAMES_11 ", %44, %45, %46, %47"
#define RIVULET_NAMES_13 RIVULET_NAMES_12 ", %48, %49, %50, %51"
#define RIVULET_NAMES_14 RIVULET_NAMES_13 ", %52, %53, %54, %55"
#define RIVULET_NAMES_15 RIVULET_NAMES_14 ", %56, %57, %58, %59"
#define RIVULET_NAMES_16 RIVULET_NAMES_15 ", %60, %61, %62, %63"

#define RIVULET_TILE(i) \
  "+f"(sum[4 * (i)]), "+f"(sum[4 * (i) + 1]), "+f"(sum[4 * (i) + 2]), "+f"(sum[4 * (i) + 3])
#define RIVULET_SUMS_1 RIVULET_TILE(0)
#define RIVULET_SUMS_2 RIVULET_SUMS_1, RIVULET_TILE(1)
#define RIVULET_SUMS_3 RIVULET_SUMS_2, RIVULET_TILE(2)
#define RIVULET_SUMS_4 RIVULET_SUMS_3, RIVULET_TILE(3)
#define RIVULET_SUMS_5 RIVULET_SUMS_4, RIVULET_TILE(4)
#define RIVULET_SUMS_6 RIVULET_SUMS_5, RIVULET_TILE(5)
#define RIVULET_SUMS_7 RIVULET_SUMS_6, RIVULET_TILE(6)
#define RIVULET_SUMS_8 RIVULET_SUMS_7, RIVULET_TILE(7)
#define RIVULET_SUMS_9 RIVULET_SUMS_8, RIVULET_TILE(8)
#define RIVULET_SUMS_10 RIVULET_SUMS_9, RIVULET_TILE(9)
#define RIVULET_SUMS_11 RIVULET_SUMS_10, RIVULET_TILE(10)
#define RIVULET_SUMS_12 RIVULET_SUMS_11, RIVULET_TILE(11)
#define RIVULET_SUMS_13 RIVULET_SUMS_12, RIVULET_TILE(12)
#define RIVULET_SUMS_14 RIVULET_SUMS_13, RIVULET_TILE(13)
#define RIVULET_SUMS_15 RIVULET_SUMS_14, RIVULET_TILE(14)
#define RIVULET_SUMS_16 RIVULET_SUMS_15, RIVULET_TILE(15)

// `a`, `b`, `one`: the numbers of the operands after the sums.
#define RIVULET_WARPGROUP_PRODUCT(tiles, outputs, a, b, one)                                      \
  template <>                                                                                     \
  struct WarpgroupProduct<tiles> {                                                                \
    __device__ static void MultiplyAdd(float (&sum)[4 * (tiles)], MatrixOperand tokens,           \
                                       MatrixOperand weights) {                                   \
      asm volatile(                                                                               \
          "{\n"                                                                                   \
          ".reg .pred adds;\n"                                                                    \
          ".reg .b64 left, right;\n"                                                              \
          "setp.ne.b32 adds, " one                                                                \
          ", 0;\n"                                                                                \
          "mov.b64 left, {" a                                                                     \
          "};\n"                                                                                  \
          "mov.b64 right, {" b                                                                    \
          "};\n"                                                                                  \
          "wgmma.mma_async.sync.aligned.m64n" outputs "k16.f32.bf16.bf16 {" RIVULET_NAMES_##tiles \
          "}, left, right, adds, 1, 1, 0, 0;\n"                                                   \
          "}\n"                                                                                   \
          : RIVULET_SUMS_##tiles                                                                  \
          : "r"(tokens.low), "r"(tokens.high), "r"(weights.low), "r"(weights.high), "n"(1));      \
    }                                                                                             \
  };

RIVULET_WARPGROUP_PRODUCT(1, "8", "%4, %5", "%6, %7", "%8")
RIVULET_WARPGROUP_PRODUCT(2, "16", "%8, %9", "%10, %11", "%12")
RIVULET_WARPGROUP_PRODUCT(3, "24", "%12, %13", "%14, %15", "%16")
RIVULET_WARPGROUP_PRODUCT(4, "32", "%16, %17", "%18, %19", "%20")
RIVULET_WARPGROUP_PRODUCT(5, "40", "%20, %21", "%22, %23", "%24")
RIVULET_WARPGROUP_PRODUCT(6, "48", "%24, %25", "%26, %27", "%28")
RIVULET_WARPGROUP_PRODUCT(7, "56", "%28, %29", "%30, %31", "%32")
RIVULET_WARPGROUP_PRODUCT(8, "64", "%32, %33", "%34, %35", "%36")
RIVULET_WARPGROUP_PRODUCT(9, "72", "%36, %37", "%38, %39", "%40")
RIVULET_WARPGROUP_PRODUCT(10, "80", "%40, %41", "%42, %43", "%44")
RIVULET_WARPGROUP_PRODUCT(11, "88", "%44, %45", "%46, %47", "%48")
RIVULET_WARPGROUP_PRODUCT(12, "96", "%48, %49", "%50, %51", "%52")
RIVULET_WARPGROUP_PRODUCT(13, "104", "%52, %53", "%54, %55", "%56")
RIVULET_WARPGROUP_PRODUCT(14, "112", "%56, %57", "%58, %59", "%60")
RIVULET_WARPGROUP_PRODUCT(15, "120", "%60, %61", "%62, %63", "%64")
RIVULET_WARPGROUP_PRODUCT(16, "128", "%64, %65", "%66, %67", "%68")

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_WARPGROUP_PRODUCT_CUH_
