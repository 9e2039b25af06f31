// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How fast weights come through the rings of products for few tokens, if nothing is multiplied: by
// the pattern in which the copy engine reads them, and by how many bytes are on their way
// (docs/gpu_notes.md#small-kernels-beside-products). "Adjacent" are copies of the same sizes from
// adjacent memory, as if weights rested in the order in which they are read.
//
// Bytes expected: each map once. A launch reads four maps, so times include a quarter of its start
// and end.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/median_rate.cuh"
#include "kernels/device/product_rings.cuh"
#include "kernels/device/tensor_copy.cuh"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kMaps = 4;      // of a launch, one after the other
constexpr uint32_t kLaunches = 8;  // each with maps of its own, so that none comes from L2
constexpr uint32_t kMostSlots = 32;
constexpr uint32_t kSharedBytes = 200 << 10;

struct Pattern {
  const char* name;
  uint32_t outputs, inputs;    // of the map
  uint32_t of_block, of_copy;  // outputs
  uint32_t boxes;              // of a copy, kBoxColumns inputs each
  bool adjacent;

  uint32_t copy_bytes() const { return of_copy * boxes * kBoxRowBytes; }
  uint32_t blocks() const { return Parts(outputs, of_block); }
  size_t map_bytes() const { return size_t{outputs} * inputs * sizeof(uint16_t); }
};

struct CopyCall {
  CUtensorMap weights;         // kMaps maps, one below the other
  const std::byte* adjacent;   // null: by tensor copies
  uint32_t bytes;              // of a copy
  uint32_t of_block, of_copy;  // outputs
  uint32_t groups;             // copies of the same inputs
  uint32_t stage_inputs, stages;
  uint32_t slots, on_the_way;
};

// Copy `n` of the block, to a place in shared memory.
__device__ void Copy(const CopyCall& c, uint32_t n, std::byte* to, uint64_t* full) {
  ArriveExpecting(full, c.bytes);
  const uint32_t of_map = c.stages * c.groups;
  if (c.adjacent != nullptr) {
    const size_t before = size_t{blockIdx.x} * kMaps * of_map + n;
    return BulkCopy(to, c.adjacent + before * c.bytes, c.bytes, full);
  }
  const uint32_t map = n / of_map, stage = n % of_map / c.groups, group = n % c.groups;
  const uint32_t output = (map * gridDim.x + blockIdx.x) * c.of_block + group * c.of_copy;
  CopyBoxes(SharedAddress(to), c.weights, output, stage * c.stage_inputs, full, ReadOnce());
}

// One thread of a block brings everything. Nothing reads what has come.
__global__ void CopyKernel(const __grid_constant__ CopyCall call) {
  extern __shared__ std::byte memory[];
  __shared__ uint64_t full[kMostSlots];
  for (uint32_t i = 0; i < call.slots; ++i) InitBarrier(&full[i], 1);
  FenceBarrierInit();
  FenceBeforeBulkCopy();
  std::byte* const ring = memory + (0u - SharedAddress(memory)) % kBoxAlignment;
  const uint32_t count = kMaps * call.stages * call.groups;
  Ring slot, arrived;
  for (uint32_t n = 0; n < count + call.on_the_way; ++n) {
    if (n >= call.on_the_way) {
      WaitBarrier(&full[arrived.at], arrived.parity);
      arrived.Advance(call.slots);
    }
    if (n < count) {
      Copy(call, n, ring + slot.at * call.bytes, &full[slot.at]);
      slot.Advance(call.slots);
    }
  }
}

// False: the driver cannot describe the maps.
bool Describe(const Pattern& p, const std::byte* memory, uint32_t on_the_way, CopyCall& call) {
  call.adjacent = p.adjacent ? memory : nullptr;
  call.bytes = p.copy_bytes();
  call.of_block = p.of_block, call.of_copy = p.of_copy;
  call.groups = Parts(p.of_block, p.of_copy);
  call.stage_inputs = p.boxes * kBoxColumns, call.stages = p.inputs / call.stage_inputs;
  call.slots = std::min(kMostSlots, (kSharedBytes - kBoxAlignment) / call.bytes);
  call.on_the_way = std::min(std::max(on_the_way / call.bytes, 1u), call.slots);
  return DescribeWholeMatrix(memory, p.outputs * kMaps, p.inputs, p.of_copy, p.boxes, call.weights);
}

// A line of the table. `read`: the read rate, bytes a second. False after an error, which it
// prints.
bool Report(const Pattern& p, const std::byte* memory, size_t launch_bytes, uint32_t on_the_way,
            double read) {
  std::vector<CopyCall> calls(kLaunches);
  for (uint32_t i = 0; i < kLaunches; ++i) {
    if (!Describe(p, memory + i * launch_bytes, on_the_way, calls[i])) {
      std::fprintf(stderr, "%s: the driver cannot describe it\n", p.name);
      return false;
    }
  }
  const double bytes = static_cast<double>(p.map_bytes()) * kMaps * kLaunches;
  const double rate = MedianRate(nullptr, bytes, [&] {
    for (const CopyCall& call : calls) CopyKernel<<<p.blocks(), 1, kSharedBytes>>>(call);
  });
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    std::fprintf(stderr, "%s: %s\n", p.name, cudaGetErrorString(error));
    return false;
  }
  std::printf("| %s | %u | %u | %.2f | %.2f | %.0f %% |\n", p.name, p.blocks(),
              calls[0].on_the_way * calls[0].bytes >> 10,
              static_cast<double>(p.map_bytes()) / rate * 1e6, rate * 1e-12, rate / read * 100);
  return true;
}

// The two maps of Mamba-2 2.7B.
constexpr Pattern kPatterns[] = {
    {"input map, 96 outputs x 256 B", 10576, 2560, 96, 96, 2, false},
    {"input map, 96 outputs x 128 B", 10576, 2560, 96, 96, 1, false},
    {"input map, 48 outputs x 512 B", 10576, 2560, 96, 48, 4, false},
    {"input map, 24 outputs x 1 KB", 10576, 2560, 96, 24, 8, false},
    {"input map, adjacent, 24 KB", 10576, 2560, 96, 96, 2, true},
    {"output map, 24 outputs x 512 B", 2560, 5120, 24, 24, 4, false},
    {"output map, 24 outputs x 1 KB", 2560, 5120, 24, 24, 8, false},
    {"output map, adjacent, 12 KB", 2560, 5120, 24, 24, 4, true},
};

int Main() {
  // What blocks read beyond the last output of a map is there, too.
  constexpr size_t kSlack = size_t{4} << 20;
  size_t launch_bytes = 0;
  for (const Pattern& p : kPatterns) {
    launch_bytes = std::max(launch_bytes, p.map_bytes() * kMaps + kSlack);
  }
  std::byte* memory = nullptr;
  if (cudaMalloc(&memory, launch_bytes * kLaunches) != cudaSuccess) {
    std::fprintf(stderr, "no GPU, or not enough memory\n");
    return 1;
  }
  cudaMemset(memory, 0, launch_bytes * kLaunches);
  cudaFuncSetAttribute(CopyKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  const double read = MeasureLimits({}).read;
  std::printf("read %.0f GB/s\n\n", read * 1e-9);
  std::printf("| copies | blocks | KB on the way | us a map | TB/s | share of the read rate |\n");
  std::printf("|---|---|---|---|---|---|\n");
  bool ok = true;
  for (const uint32_t kilobytes : {48u, 72u, 120u}) {
    for (const Pattern& p : kPatterns) {
      ok = ok && Report(p, memory, launch_bytes, kilobytes << 10, read);
    }
  }
  cudaFree(memory);
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace rivulet::cuda

int main() { return rivulet::cuda::Main(); }
