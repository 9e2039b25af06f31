// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/mixer_suite_on_device.h"
#include "kernels/mixers/softmax_attention/softmax_attention_config.h"
#include "kernels/mixers/softmax_attention/softmax_attention_subject.h"

namespace rivulet {
namespace {

DeviceCase Core(std::string name, SoftmaxAttentionShape shape) {
  return EveryMode({std::move(name), [=](DType state) mutable {
                      shape.state_dtype = state;
                      return std::make_unique<AttentionSubject>(shape);
                    }});
}

// Several spans of 256 tokens.
DeviceCase Long(DeviceCase one) {
  one.tokens = 600;
  one.many = false;
  return one;
}

DeviceCase Layer(std::string name, SoftmaxAttentionConfig config) {
  config.scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  return LayerCase(std::move(name), config);
}

// With a choice of this many pools of four tokens.
DeviceCase Choosing(std::string name, size_t head_dim, size_t most) {
  return Layer(std::move(name),
               {.heads = 4,
                .kv_heads = 2,
                .head_dim = head_dim,
                .rope = RopeConfig{.rotary_dim = 16},
                .selection = {.pool = 4, .most = most, .heads = 2, .key_dim = 32, .gated = false}});
}

// Pools that score nearly alike may be chosen one for the other: the outputs have no bound.
DeviceCase OfFewPools(DeviceCase one) {
  one.exact = one.rounded = INFINITY;
  return one;
}

std::vector<DeviceCase> Cases() {
  return {Everywhere(Core("d16", {3, 3, 16})),
          Everywhere(Core("d24_grouped_window_20", {4, 2, 24, 20})),
          Core("d32_multi_query", {4, 1, 32}),
          Core("d40_unseen_18_window_40", {4, 2, 40, 40, DType::kFloat32, 0, 18}),
          Core("d48", {2, 2, 48}),
          Core("d64_groups_of_3", {6, 2, 64}),
          Core("d64_many_heads", {70, 1, 64}),
          Core("d72_groups_of_7", {7, 1, 72}),
          Core("d96_window_5", {4, 4, 96, 5}),
          Core("d128_grouped", {4, 2, 128}),
          Core("d128_groups_of_16", {16, 1, 128}),
          Core("d200_window_16", {2, 1, 200, 16}),
          Core("d256_grouped", {4, 1, 256}),
          Long(Core("d16_long", {4, 2, 16})),
          Long(Core("d64_long_window_300", {8, 2, 64, 300})),
          Long(Core("d128_long", {2, 2, 128})),
          Long(Core("d256_long_unseen_1", {2, 1, 256, 0, DType::kFloat32, 0, 1})),
          Everywhere(Layer("layer_d16", {.heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = 16,
                                         .rope = RopeConfig{.rotary_dim = 16},
                                         .output_gate = true})),
          Layer("layer_d72_window_20",
                {.heads = 3, .kv_heads = 3, .head_dim = 72, .qkv_bias = true, .window = 20}),
          Layer("layer_d256", {.heads = 2,
                               .kv_heads = 1,
                               .head_dim = 256,
                               .rope = RopeConfig{.rotary_dim = 64},
                               .qk_norm = HeadNorm::kRms}),
          Everywhere(Choosing("layer_d32_all_pools", 32, 64)),
          EveryMode(Choosing("layer_d128_all_pools", 128, 64)),
          EveryMode(Choosing("layer_d256_all_pools", 256, 64)),
          OfFewPools(Choosing("layer_d32_three_pools", 32, 3)),
          OfFewPools(Choosing("layer_d128_three_pools", 128, 3)),
          OfFewPools(Choosing("layer_d256_three_pools", 256, 3))};
}

INSTANTIATE_TEST_SUITE_P(SoftmaxAttention, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
