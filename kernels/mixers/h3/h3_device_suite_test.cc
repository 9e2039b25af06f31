// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/h3/h3_config.h"
#include "kernels/mixers/h3/h3_subject.h"
#include "kernels/mixers/mixer_suite_on_device.h"

namespace rivulet {
namespace {

DeviceCase Core(std::string name, const H3Shape& shape, double radius) {
  return WideStates({std::move(name), [=](DType) { return MakeH3Subject(shape, radius); }});
}

// As wide as the residual stream.
DeviceCase Layer(std::string name, const H3Config& config) {
  return WideStates(LayerCase(std::move(name), config, config.channels()));
}

std::vector<DeviceCase> Cases() {
  return {
      Everywhere(Core("n8_m4_hd1", {16, 1, 8, 4}, 0.99)),
      Everywhere(Core("n18_m3_hd4", {5, 4, 18, 3}, 0.95)),
      Core("n1_m1_hd1", {33, 1, 1, 1}, 0.9),
      Core("n17_m8_hd1", {20, 1, 17, 8}, 0.999),
      Core("n40_m20_hd2", {19, 2, 40, 20}, 0.99),
      Core("n64_m32_hd1", {300, 1, 64, 32}, 0.999),
      Core("n96_m48_hd3", {7, 3, 96, 48}, 0.99),
      Core("n200_m100_hd1", {24, 1, 200, 100}, 0.99),
      Core("n256_m128_hd2", {9, 2, 256, 128}, 0.99),
      Core("n40_m200_hd1", {11, 1, 40, 200}, 0.99),
      Everywhere(Layer("layer_n16_hd1", {.heads = 32, .head_dim = 1, .state_size = 16, .ssms = 4})),
      Layer("layer_n64_hd2", {.heads = 24, .head_dim = 2, .state_size = 64, .ssms = 1})};
}

INSTANTIATE_TEST_SUITE_P(H3, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
