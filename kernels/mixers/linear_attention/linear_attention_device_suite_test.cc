// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/linear_attention/linear_attention_subject.h"
#include "kernels/mixers/mixer_suite_on_device.h"

namespace rivulet {
namespace {

DeviceCase Core(std::string name, const HeadShape& shape, bool normalised) {
  return CoreCase(std::move(name), shape, [=](const HeadShape& own) {
    return MakeLinearAttentionSubject(own, normalised);
  });
}

DeviceCase Layer(std::string name, const HeadShape& s, const FeatureMapConfig& map,
                 bool normalised) {
  return LayerCase(std::move(name), LinearAttentionConfig{.heads = s.heads,
                                                          .kv_heads = s.groups,
                                                          .key_dim = s.key_dim,
                                                          .value_dim = s.value_dim,
                                                          .feature_map = map,
                                                          .normalised = normalised});
}

std::vector<DeviceCase> Cases() {
  return {Everywhere(Core("d16", {3, 3, 16, 16}, false)),
          Everywhere(Core("d24_e40_grouped_normalised", {4, 2, 24, 40}, true)),
          Core("d32_grouped", {4, 2, 32, 32}, false),
          Core("d48_normalised", {4, 4, 48, 48}, true),
          Core("d64", {8, 8, 64, 64}, false),
          Core("d64_normalised_multi_query", {4, 1, 64, 64}, true),
          Core("d96_e128_normalised", {2, 2, 96, 128}, true),
          Core("d128", {2, 2, 128, 256}, false),
          Core("d128_e192_normalised_grouped", {2, 1, 128, 192}, true),
          Core("d256_grouped", {4, 2, 256, 64}, false),
          Core("d300_e40_normalised", {3, 3, 300, 40}, true),
          Core("d512_e72", {1, 1, 512, 72}, false),
          Core("d512_e64_normalised", {2, 2, 512, 64}, true),
          Core("d64_sixteen_queries_normalised", {16, 1, 64, 32}, true),
          Everywhere(WideStates(Layer("layer_elu_d16", {4, 2, 16, 24},
                                      {.kind = FeatureMapKind::kElu, .width = 16}, true))),
          Layer("layer_identity_d64", {4, 4, 64, 64},
                {.kind = FeatureMapKind::kIdentity, .width = 64}, false)};
}

INSTANTIATE_TEST_SUITE_P(LinearAttention, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
