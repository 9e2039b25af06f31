// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mixer.h"

#include "kernels/base/check.h"
#include "kernels/device/device.h"

namespace rivulet {

void Mixer::Enqueue(const DeviceStep& /*step*/, const Operand& /*x*/, FloatMatrix /*y*/) const {
  RIVULET_CHECK(false, "this mixer has no form for a device");
}

namespace {

// How a device stores rows of a token's inputs.
DType RowsOf(const Device& device) {
  const bool bf16 = device.precision() == ProductPrecision::kBFloat16;
  return bf16 ? DType::kBFloat16 : DType::kFloat32;
}

}  // namespace

DType MixerOptions::KvDType() const {
  if (kv_dtype.has_value()) return *kv_dtype;
  return device == nullptr ? DType::kFloat32 : RowsOf(*device);
}

StateLayout MixerOptions::NewLayout() const {
  if (device == nullptr) {
    StateLayout layout(fold_interval);
    if (drafts) layout.SetForgets();
    return layout;
  }
  return StateLayout(fold_interval, RowsOf(*device));
}

}  // namespace rivulet
