// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/cuda_device.h"

namespace rivulet {

absl::StatusOr<int> CudaDeviceCount() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  // Without a driver the count is left untouched, so the error decides.
  if (error == cudaSuccess && count > 0) return count;
  cudaGetLastError();  // the runtime keeps the error for the next call otherwise
  return absl::FailedPreconditionError(
      absl::StrCat("no CUDA device can be used (",
                   error == cudaSuccess ? "there is none" : cudaGetErrorString(error),
                   "): check nvidia-smi, or use --device cpu"));
}

bool CublasLtIsLoaded() {
  void* const library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return false;
  dlclose(library);
  return true;
}

}  // namespace rivulet
