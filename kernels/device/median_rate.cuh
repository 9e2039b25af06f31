// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How fast work on a stream moves bytes, for benchmarks and ceilings.
#ifndef RIVULET_KERNELS_DEVICE_MEDIAN_RATE_CUH_
#define RIVULET_KERNELS_DEVICE_MEDIAN_RATE_CUH_

#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

namespace rivulet::cuda {

// Bytes a second of `work`, which enqueues kernels or copies that move `bytes`: the median of
// several runs. Waits for the stream. Errors of CUDA are left to the caller to ask for.
template <typename Work>
double MedianRate(cudaStream_t stream, double bytes, Work&& work) {
  constexpr int kRepeats = 9;
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<float> times;
  for (int i = 0; i < kRepeats; ++i) {
    cudaEventRecord(begin, stream);
    work();
    cudaEventRecord(end, stream);
    cudaEventSynchronize(end);
    cudaEventElapsedTime(&times.emplace_back(), begin, end);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  return bytes / (times[kRepeats / 2] * 1e-3);
}

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_MEDIAN_RATE_CUH_
