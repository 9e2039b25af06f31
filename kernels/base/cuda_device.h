// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_KERNELS_BASE_CUDA_DEVICE_H_
#define RIVULET_KERNELS_BASE_CUDA_DEVICE_H_

#include "absl/status/statusor.h"

namespace rivulet {

// The number of CUDA devices that this process can use, at least one. FailedPrecondition when there
// is none, when the driver is missing or too old, and in a build without CUDA; the message says
// which, and what to do. Needs no driver library to start: a CUDA build runs on a machine without a
// GPU. May be called from any thread.
absl::StatusOr<int> CudaDeviceCount();

// Whether libcublasLt, which is opened with a device where the machine has it, is loaded. May be
// called from any thread.
bool CublasLtIsLoaded();

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_CUDA_DEVICE_H_
