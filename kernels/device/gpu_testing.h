// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How tests ask for the GPU: without one they are skipped, which the log shows; with REQUIRE_GPU=1
// in the environment they fail.
#ifndef RIVULET_KERNELS_DEVICE_GPU_TESTING_H_
#define RIVULET_KERNELS_DEVICE_GPU_TESTING_H_

#include <cstdlib>
#include <string_view>

#include "gtest/gtest.h"
#include "kernels/base/cuda_device.h"

namespace rivulet {

inline bool GpuIsRequired() {
  const char* const value = std::getenv("REQUIRE_GPU");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace rivulet

// Ends the test, or a fixture's SetUp, where there is no GPU.
#define RIVULET_NEED_GPU()                                                              \
  if (const absl::StatusOr<int> gpus = ::rivulet::CudaDeviceCount(); !gpus.ok()) {      \
    ASSERT_FALSE(::rivulet::GpuIsRequired()) << "REQUIRE_GPU=1, but " << gpus.status(); \
    GTEST_SKIP() << "NO GPU: nothing ran on a device (" << gpus.status() << ")";        \
  }                                                                                     \
  static_assert(true, "a semicolon follows")

#endif  // RIVULET_KERNELS_DEVICE_GPU_TESTING_H_
