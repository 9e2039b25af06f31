// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Products of many rows by cuBLASLt, which is opened at run time: a program that is linked with it
// would not start on a machine without. An algorithm that does not split K is the chain of
// products.cu, bit for bit; each one is compared with it before it is used, and not used if it
// differs.
//
// Threading: engine thread only.
#ifndef RIVULET_KERNELS_DEVICE_LARGE_PRODUCTS_H_
#define RIVULET_KERNELS_DEVICE_LARGE_PRODUCTS_H_

#include <memory>

#include "kernels/base/tensor_view.h"
#include "kernels/device/device_operations.h"

namespace rivulet::cuda {

struct LaunchContext;

class LargeProducts {
 public:
  virtual ~LargeProducts() = default;

  // False: it does not do this product, and nothing was enqueued. `recording`: the stream records,
  // so that no algorithm can be tried.
  virtual bool Run(const DeviceLinear& linear, const Operand& x, FloatMatrix y, bool recording,
                   const LaunchContext& context) = 0;
};

// Null where libcublasLt.so.13 cannot be opened.
std::unique_ptr<LargeProducts> OpenLargeProducts();

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_LARGE_PRODUCTS_H_
