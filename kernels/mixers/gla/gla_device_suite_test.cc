// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/gla/gla_subject.h"
#include "kernels/mixers/mixer_suite_on_device.h"

namespace rivulet {
namespace {

DeviceCase Core(std::string name, const HeadShape& shape, double lowest = -0.1) {
  return CoreCase(std::move(name), shape,
                  [=](const HeadShape& own) { return MakeGlaSubject(own, lowest); });
}

DeviceCase Layer(std::string name, const HeadShape& s, bool convolutions) {
  return LayerCase(std::move(name), GlaConfig{.heads = s.heads,
                                              .kv_heads = s.groups,
                                              .key_dim = s.key_dim,
                                              .value_dim = s.value_dim,
                                              .use_short_conv = convolutions,
                                              .output = {.norm_name = "g_norm"},
                                              .gate_rank = 4});
}

std::vector<DeviceCase> Cases() {
  return {Everywhere(Core("d16", {3, 3, 16, 16})),
          Everywhere(Core("d40_e72_grouped", {4, 2, 40, 72}, -0.5)),
          Core("d20_fast_decay", {2, 1, 20, 40}, -10.0),
          Core("d32_e64_grouped", {4, 2, 32, 64}),
          Core("d48", {2, 2, 48, 48}),
          Core("d64", {8, 8, 64, 64}),
          Core("d64_e16", {8, 8, 64, 16}),
          Core("d64_multi_query", {8, 1, 64, 64}),
          Core("d64_sixteen_queries", {16, 1, 64, 32}),
          Core("d96_grouped", {4, 2, 96, 96}),
          Core("d128_grouped", {4, 2, 128, 128}),
          Core("d128_e80", {4, 2, 128, 80}),
          Core("d128_e256", {4, 4, 128, 256}),
          Core("d160_e64", {2, 2, 160, 64}),
          Core("d256_e512", {2, 2, 256, 512}, -0.01),
          EveryMode(Core("d300_e40", {3, 3, 300, 40})),
          Core("d512_e64_grouped", {2, 1, 512, 64}, -0.01),
          Everywhere(Layer("layer_d16_e24", {4, 2, 16, 24}, true)),
          Layer("layer_d64", {4, 4, 64, 64}, false),
          Layer("layer_d256", {2, 2, 256, 256}, true)};
}

INSTANTIATE_TEST_SUITE_P(Gla, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
