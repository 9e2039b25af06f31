// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/mixer_suite_on_device.h"
#include "kernels/mixers/retnet/retnet_subject.h"

namespace rivulet {
namespace {

DeviceCase Core(std::string name, const HeadShape& shape) {
  return CoreCase(std::move(name), shape,
                  [](const HeadShape& own) { return MakeRetNetSubject(own); });
}

DeviceCase Layer(std::string name, const HeadShape& s, bool convolutions) {
  return LayerCase(std::move(name), RetNetConfig{.heads = s.heads,
                                                 .kv_heads = s.groups,
                                                 .key_dim = s.key_dim,
                                                 .value_dim = s.value_dim,
                                                 .use_short_conv = convolutions,
                                                 .output = {.norm_name = "g_norm"}});
}

std::vector<DeviceCase> Cases() {
  return {Everywhere(Core("d16", {3, 3, 16, 16})),
          Everywhere(Core("d24_e40_grouped", {4, 2, 24, 40})),
          Core("d32_e64_grouped", {4, 2, 32, 64}),
          Core("d48_e96", {2, 2, 48, 96}),
          Core("d64_e128", {8, 4, 64, 128}),
          Core("d64_grouped", {16, 8, 64, 64}),
          Core("d64_sixteen_queries", {16, 1, 64, 64}),
          Core("d96_e192", {2, 2, 96, 192}),
          Core("d128_e256", {2, 2, 128, 256}),
          Core("d256_e512", {2, 2, 256, 512}),
          Core("d300_e72", {2, 2, 300, 72}),
          Core("d512_grouped", {2, 1, 512, 128}),
          Everywhere(Layer("layer_d16_e24", {4, 2, 16, 24}, true)),
          Layer("layer_d256", {2, 2, 256, 512}, false)};
}

INSTANTIATE_TEST_SUITE_P(RetNet, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
