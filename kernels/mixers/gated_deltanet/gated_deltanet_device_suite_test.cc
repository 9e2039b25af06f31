// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/delta_net/delta_rule/delta_rule_subject.h"
#include "kernels/mixers/mixer_suite_on_device.h"

namespace rivulet {
namespace {

DeviceCase Core(std::string name, const HeadShape& shape, double lowest = -0.1) {
  return CoreCase(std::move(name), shape,
                  [=](const HeadShape& own) { return MakeDeltaRuleSubject(own, 1.0, lowest); });
}

DeviceCase Layer(std::string name, const HeadShape& shape) {
  return LayerCase(
      std::move(name),
      DeltaRuleConfig{.shape = shape, .decays = true, .use_gate = true, .conv_size = 4});
}

// The norm of a head's output divides it by its size. Heads that forget fast, as these random
// weights make them, hold nearly one product of a query and a key, which is for some tokens a
// hundredth of what it is for most; its rounding grows as much. In narrow heads it shows: 0.057 off
// on an H100, and 0.061 on the fake device with operands of products rounded to bf16.
constexpr double kNormed = 0.2;

std::vector<DeviceCase> Cases() {
  return {Everywhere(Core("d16_grouped", {4, 2, 16, 16})),
          Everywhere(Core("d24_e40", {2, 2, 24, 40}, -0.5)),
          Core("d20_fast_decay", {2, 1, 20, 40}, -10.0),
          Core("d32_e64", {4, 2, 32, 64}),
          Core("d48", {4, 4, 48, 48}),
          Core("d64_grouped", {8, 2, 64, 64}),
          Core("d64_e16", {8, 8, 64, 16}),
          Core("d96_e192", {2, 2, 96, 192}),
          Core("d128_grouped", {8, 4, 128, 128}),
          Core("d128_e48", {4, 2, 128, 48}),
          Core("d256_e72", {2, 2, 256, 72}, -0.01),
          Core("d256_e512", {2, 1, 256, 512}, -0.01),
          EveryMode(Core("d300_e40", {2, 2, 300, 40}, -0.01)),
          Core("d512_e64", {2, 1, 512, 64}, -0.01),
          Rounded(Everywhere(Layer("layer_d16_e24", {4, 2, 16, 24})), kNormed),
          Layer("layer_d128", {4, 2, 128, 128})};
}

INSTANTIATE_TEST_SUITE_P(GatedDeltaNet, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
