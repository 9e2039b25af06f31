// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How long a step of a chain takes: k16 products that are added up one after the other, by a warp's
// matrix instruction (mma.sync) and by a warpgroup's (wgmma), with all operands in shared memory.
// It is what bounds a product with few outputs (docs/gpu_notes.md#chains-of-few-outputs).
//
// Every processor has one block. Operands are zeros. Cycles are those of one block's first thread.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/warpgroup_product.cuh"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kSteps = 320;  // as many as the output product of Mamba-2 2.7B has
constexpr uint32_t kSharedBytes = 200 << 10;
constexpr uint32_t kBoxBytes = 8 << 10;  // 64 rows of 128 bytes
constexpr uint32_t kBoxSteps = 4;

__device__ void ClearShared(std::byte* memory) {
  for (uint32_t i = threadIdx.x * 16; i < kSharedBytes; i += blockDim.x * 16) {
    *reinterpret_cast<uint4*>(memory + i) = {0, 0, 0, 0};
  }
  __syncthreads();
  FenceBeforeBulkCopy();  // the warpgroup's instruction reads as the copy engine does
}

// The compiler has to compute the sums.
template <int kCount>
__device__ void Leave(const float (&sum)[kCount], long long cycles, long long* times, float* sums) {
  float total = 0.0f;
#pragma unroll
  for (const float x : sum) total += x;
  sums[blockIdx.x * blockDim.x + threadIdx.x] = total;
  if (threadIdx.x == 0) times[blockIdx.x] = cycles;
}

__global__ void WarpChain(long long* times, float* sums) {
  extern __shared__ __align__(1024) std::byte memory[];
  ClearShared(memory);
  const uint32_t weights = SharedAddress(memory) + threadIdx.x % 32 * 16;
  const uint32_t tokens = weights + (32 << 10);
  float sum[4] = {};
  const long long start = clock64();
#pragma unroll 4
  for (uint32_t step = 0; step < kSteps; step += 2) {
    uint32_t weight[4], token[4];
    LoadMatrices(weight, weights + step % 64 * 64);
    LoadMatrices(token, tokens + step % 64 * 64);
    MultiplyAdd(sum, {token[0], 0, token[1], 0}, weight[0], weight[1]);
    MultiplyAdd(sum, {token[2], 0, token[3], 0}, weight[2], weight[3]);
  }
  Leave(sum, clock64() - start, times, sums);
}

// Each warpgroup has 64 tokens and 8 · kTiles outputs. A group of instructions has two boxes.
template <int kTiles>
__global__ void WarpgroupChain(long long* times, float* sums) {
  extern __shared__ __align__(1024) std::byte memory[];
  ClearShared(memory);
  const uint32_t tokens = SharedAddress(memory) + threadIdx.x / 128 * 2 * kBoxBytes;
  const uint32_t weights = SharedAddress(memory) + 16 * kBoxBytes;
  const MatrixOperand token = BoxOperand(tokens), weight = BoxOperand(weights);
  long long cycles = 0;
#pragma unroll 1
  for (uint32_t round = 0; round < 2; ++round) {  // the first brings the instructions
    float sum[4 * kTiles];
#pragma unroll
    for (float& x : sum) x = 0.0f;
    const long long start = clock64();
#pragma unroll 1
    for (uint32_t step = 0; step < kSteps; step += 2 * kBoxSteps) {
      BeginProducts();
#pragma unroll
      for (uint32_t i = 0; i < 2 * kBoxSteps; ++i) {
        const uint32_t box = i / kBoxSteps, k = i % kBoxSteps * 32;
        WarpgroupProduct<kTiles>::MultiplyAdd(sum, token + (box * kBoxBytes + k) / 16,
                                              weight + (box * kTiles * 1024 + k) / 16);
      }
      EndProducts();
      AwaitProducts<1>();
    }
    AwaitProducts<0>();
    cycles = clock64() - start;
    Leave(sum, cycles, times, sums);
  }
}

// False after an error, which it prints.
bool Measure(void (*kernel)(long long*, float*), uint32_t threads, const char* name) {
  int processors = 0;
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  long long* times = nullptr;
  float* sums = nullptr;
  cudaMalloc(&times, processors * sizeof(long long));
  cudaMalloc(&sums, size_t{threads} * processors * sizeof(float));
  for (int run = 0; run < 2; ++run) kernel<<<processors, threads, kSharedBytes>>>(times, sums);
  std::vector<long long> cycles(processors);
  cudaMemcpy(cycles.data(), times, cycles.size() * sizeof(long long), cudaMemcpyDeviceToHost);
  cudaFree(times), cudaFree(sums);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    std::fprintf(stderr, "%s: %s\n", name, cudaGetErrorString(error));
    return false;
  }
  std::printf("| %s | %u | %.1f |\n", name, threads / 32,
              static_cast<double>(cycles[processors / 2]) / kSteps);
  return true;
}

template <int kTiles>
bool MeasureGroups(const char* name) {
  bool ok = true;
  for (const uint32_t groups : {1u, 2u, 3u}) {
    ok = ok && Measure(WarpgroupChain<kTiles>, groups * 128, name);
  }
  return ok;
}

int Main() {
  std::printf("| instruction | warps of a block | cycles of a k16 step |\n|---|---|---|\n");
  for (const uint32_t warps : {1u, 4u, 8u, 11u}) {
    if (!Measure(WarpChain, warps * 32, "mma.sync m16n8k16")) return 1;
  }
  const bool ok = MeasureGroups<1>("wgmma m64n8k16") && MeasureGroups<2>("wgmma m64n16k16") &&
                  MeasureGroups<3>("wgmma m64n24k16") && MeasureGroups<4>("wgmma m64n32k16") &&
                  MeasureGroups<8>("wgmma m64n64k16") && MeasureGroups<16>("wgmma m64n128k16");
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace rivulet::cuda

int main() { return rivulet::cuda::Main(); }
