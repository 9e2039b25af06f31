// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/mixer_suite_on_device.h"
#include "kernels/mixers/rwkv7/rwkv7_config.h"

namespace rivulet {
namespace {

// On a device the recurrence is a part of the operation for the whole time mixing.
DeviceCase Layer(std::string name, const HeadShape& shape, bool fused_norm = true) {
  return LayerCase(std::move(name),
                   Rwkv7Config{.shape = shape, .ranks = {5, 6, 7, 8}, .fused_norm = fused_norm},
                   shape.heads * shape.key_dim);
}

std::vector<DeviceCase> Cases() {
  return {Everywhere(Layer("d16", {2, 2, 16, 16})),
          Everywhere(Layer("d24_e40", {2, 2, 24, 40}, false)),
          Layer("d32", {4, 4, 32, 32}),
          Layer("d48", {2, 2, 48, 48}),
          Layer("d64", {4, 4, 64, 64}),
          Layer("d96_e72", {2, 2, 96, 72}),
          Layer("d128", {2, 2, 128, 128}),
          Layer("d256_e300", {1, 1, 256, 300}),
          Layer("d300_e40", {2, 2, 300, 40}),
          Layer("d512_e64", {1, 1, 512, 64})};
}

INSTANTIATE_TEST_SUITE_P(Rwkv7, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
