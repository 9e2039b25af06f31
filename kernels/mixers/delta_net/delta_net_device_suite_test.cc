// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/delta_net/delta_rule/delta_rule_subject.h"
#include "kernels/mixers/mixer_suite_on_device.h"

namespace rivulet {
namespace {

DeviceCase Core(std::string name, const HeadShape& shape, double beta = 1.0) {
  return CoreCase(std::move(name), shape,
                  [=](const HeadShape& own) { return MakeDeltaRuleSubject(own, beta, 0.0); });
}

DeviceCase Layer(std::string name, const HeadShape& shape, size_t conv_size) {
  return LayerCase(std::move(name), DeltaRuleConfig{.shape = shape, .conv_size = conv_size});
}

std::vector<DeviceCase> Cases() {
  return {Everywhere(Core("d16", {3, 3, 16, 16})),
          Everywhere(Core("d20_e37", {2, 2, 20, 37})),
          Core("d32_e80", {2, 2, 32, 80}),
          Core("d48", {4, 4, 48, 48}),
          Core("d64", {8, 8, 64, 64}),
          Core("d64_negative", {4, 4, 64, 32}, 1.9),
          Core("d96", {2, 2, 96, 96}),
          Core("d128", {4, 4, 128, 128}),
          Core("d256", {2, 2, 256, 128}),
          Core("d300_e40", {2, 2, 300, 40}),
          Core("d512_e64", {2, 2, 512, 64}),
          Everywhere(Layer("layer_d16_e24", {4, 4, 16, 24}, 4)),
          Layer("layer_d64", {2, 2, 64, 64}, 0)};
}

INSTANTIATE_TEST_SUITE_P(DeltaNet, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
