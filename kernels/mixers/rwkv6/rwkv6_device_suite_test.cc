// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/mixer_suite_on_device.h"
#include "kernels/mixers/rwkv6/rwkv6_config.h"

namespace rivulet {
namespace {

// Where products are bf16: the norm of a head's output makes the rounding of a small one larger.
// The largest distance on an H100 is 0.035 (d300_e40; 0.034 on the fake device with operands of
// products rounded to bf16), then 0.025 (d32).
constexpr double kNormed = 0.05;

// On a device the recurrence is a part of the operation for the whole time mixing. The maps of the
// mixtures are drawn alike for both devices, which take them in different forms.
DeviceCase Layer(std::string name, const HeadShape& shape, size_t hidden = 32) {
  return Rounded(
      LayerCase(std::move(name), Rwkv6Config{.shape = shape, .mixture_rank = 5, .decay_rank = 6},
                hidden,
                {{"x_proj.0.linear.weight", {-0.3f, 0.3f}}, {"x_proj.2.weight", {-0.5f, 0.5f}}}),
      kNormed);
}

std::vector<DeviceCase> Cases() {
  return {Everywhere(Layer("d16", {2, 2, 16, 16})),
          Everywhere(Layer("d24_e40", {2, 2, 24, 40})),
          Layer("d32", {4, 4, 32, 32}),
          Layer("d48", {2, 2, 48, 48}, 96),
          Layer("d64", {4, 4, 64, 64}, 256),
          Layer("d96_e72", {2, 2, 96, 72}),
          Layer("d128", {2, 2, 128, 128}),
          Layer("d256", {1, 1, 256, 300}),
          Layer("d300_e40", {2, 2, 300, 40}),
          Layer("d512_e64", {1, 1, 512, 64})};
}

INSTANTIATE_TEST_SUITE_P(Rwkv6, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
