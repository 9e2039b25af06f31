// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// In the place of cuda_device.cu in a build without CUDA.
#include "kernels/device/device.h"

namespace rivulet {

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(ProductPrecision /*precision*/) {
  return absl::FailedPreconditionError(
      "this build has no CUDA: use --device cpu, or a build of cmake --preset cuda");
}

}  // namespace rivulet
