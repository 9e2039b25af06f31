// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mixer.h"

#include "kernels/base/check.h"
#include "kernels/device/device.h"

namespace rivulet {

void Mixer::Enqueue(const DeviceStep& /*step*/, const Operand& /*x*/, FloatMatrix /*y*/) const {
  RIVULET_CHECK(false, "this mixer has no form for a device");
}

StateLayout MixerOptions::NewLayout() const {
  if (device == nullptr) return StateLayout(fold_interval);
  const bool bf16 = device->precision() == ProductPrecision::kBFloat16;
  return StateLayout(fold_interval, bf16 ? DType::kBFloat16 : DType::kFloat32);
}

}  // namespace rivulet
