// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "absl/status/status.h"
#include "kernels/base/cuda_device.h"

namespace rivulet {

absl::StatusOr<int> CudaDeviceCount() {
  return absl::FailedPreconditionError(
      "this build has no CUDA: use --device cpu, or a build of cmake --preset cuda");
}

bool CublasLtIsLoaded() { return false; }

}  // namespace rivulet
