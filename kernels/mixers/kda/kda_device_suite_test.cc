// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/kda/kda_subject.h"
#include "kernels/mixers/mixer_suite_on_device.h"

namespace rivulet {
namespace {

DeviceCase Core(std::string name, const HeadShape& shape, double lowest = -0.1, double beta = 1.0) {
  return CoreCase(std::move(name), shape,
                  [=](const HeadShape& own) { return MakeKdaSubject(own, beta, lowest); });
}

DeviceCase Layer(std::string name, const HeadShape& shape, size_t conv_size) {
  return LayerCase(std::move(name),
                   KdaConfig{.shape = shape, .gate_rank = 8, .conv_size = conv_size});
}

// The norm of a head's output divides it by its size. Heads that forget fast, as these random
// weights make them, hold nearly one product of a query and a key, which is for some tokens a
// hundredth of what it is for most; its rounding grows as much. In narrow heads it shows: 0.12 off
// on an H100, and 0.088 on the fake device with operands of products rounded to bf16.
constexpr double kNormed = 0.2;

std::vector<DeviceCase> Cases() {
  return {Everywhere(Core("d16", {3, 3, 16, 16})),
          Everywhere(Core("d24_e40_grouped", {4, 2, 24, 40}, -0.5)),
          Core("d20_fast_decay", {2, 1, 20, 40}, -10.0),
          Core("d32_negative", {4, 4, 32, 32}, -0.5, 2.0),
          Core("d48_grouped", {4, 2, 48, 48}),
          Core("d64", {8, 8, 64, 64}),
          Core("d64_e16_grouped", {8, 2, 64, 16}),
          Core("d96", {2, 2, 96, 96}),
          Core("d128_grouped", {4, 2, 128, 128}),
          Core("d192_e64", {2, 2, 192, 64}),
          Core("d256_e64", {2, 2, 256, 64}, -0.01),
          Core("d300_e72", {2, 2, 300, 72}, -0.01),
          Core("d512_e32", {2, 1, 512, 32}, -0.01),
          Rounded(Everywhere(Layer("layer_d16_e24", {4, 2, 16, 24}, 4)), kNormed),
          Layer("layer_d128", {2, 2, 128, 128}, 4)};
}

INSTANTIATE_TEST_SUITE_P(Kda, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
