// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"
#include "kernels/mixers/log_linear_gated_deltanet/log_linear_gated_deltanet_subject.h"
#include "kernels/mixers/mixer_suite_on_device.h"

namespace rivulet {
namespace {

DeviceCase Core(std::string name, const HeadShape& shape, uint32_t levels, double lowest = -0.1,
                double beta = 1.0) {
  return CoreCase(std::move(name), shape, [=](const HeadShape& own) {
    return std::make_unique<LogLinearGatedDeltaNetSubject>(LogLinearGatedDeltaNetOptions{
        own.heads, own.key_dim, own.value_dim, levels, beta, lowest, own.state_dtype});
  });
}

DeviceCase Layer(std::string name, const HeadShape& shape, uint32_t levels) {
  return LayerCase(std::move(name), DeltaRuleConfig{.shape = shape,
                                                    .decays = true,
                                                    .conv_size = 4,
                                                    .log_linear = true,
                                                    .max_levels = levels});
}

// Up to three pages at the same time.
DeviceCase Long(DeviceCase one) {
  one.tokens = 138;
  return one;
}

// The norm of a head's output divides it by its size. Heads that forget fast, as these random
// weights make them, hold nearly one product of a query and a key, which is for some tokens a
// hundredth of what it is for most; its rounding grows as much. In narrow heads it shows: 0.12 off
// on an H100, and 0.034 on the fake device with operands of products rounded to bf16, but rows and
// scores not.
constexpr double kNormed = 0.2;

std::vector<DeviceCase> Cases() {
  return {Everywhere(Core("levels7_d16_e16", {3, 3, 16, 16}, 7)),
          Everywhere(Core("levels5_d24_e40", {2, 2, 24, 40}, 5)),
          Core("levels1_d16_e16", {3, 3, 16, 16}, 1),
          Long(Core("levels15_d32_e64", {3, 3, 32, 64}, 15, -0.3)),
          Core("levels6_d64_e32_negative", {4, 4, 64, 32}, 6, -0.02, 2.0),
          Long(Core("levels15_d128_e64", {2, 2, 128, 64}, 15, -0.01)),
          Core("levels15_d16_e128_fast_decay", {2, 2, 16, 128}, 15, -8.0),
          Core("levels15_d48_e80", {3, 3, 48, 80}, 15, -0.02, 0.5),
          Core("levels15_d96_e300", {1, 1, 96, 300}, 15, -0.01, 0.5),
          Core("levels15_d256_e72", {2, 2, 256, 72}, 15, -0.01, 0.5),
          Core("levels9_d512_e32", {2, 2, 512, 32}, 9, -0.01, 0.5),
          Rounded(Everywhere(Layer("layer_d16_e24", {4, 4, 16, 24}, 15)), kNormed),
          Layer("layer_d64", {4, 4, 64, 64}, 15)};
}

INSTANTIATE_TEST_SUITE_P(LogLinearGatedDeltaNet, DeviceMixerSuite,
                         testing::ValuesIn(OnDevices(Cases())), DeviceCaseName);

}  // namespace
}  // namespace rivulet
