// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/latent_attention/latent_attention_config.h"
#include "kernels/mixers/latent_attention/latent_attention_subject.h"
#include "kernels/mixers/mixer_suite_on_device.h"

namespace rivulet {
namespace {

DeviceCase Core(std::string name, LatentSubjectShape shape) {
  return EveryMode({std::move(name), [=](DType state) mutable {
                      shape.dtype = state;
                      return MakeLatentAttentionSubject(shape);
                    }});
}

// Two spans of 256 tokens.
DeviceCase Long(DeviceCase one) {
  one.tokens = 300;
  one.many = false;
  return one;
}

// Where products are bf16: queries pass three of them before a score is made, and values two behind
// it. The largest distance on an H100 is 0.038 (layer_r512, the same on the fake device with
// operands of products rounded to bf16), then 0.02 (layer_all_pools).
constexpr double kThreeProducts = 0.05;

DeviceCase Layer(std::string name, LatentAttentionConfig config) {
  config.scale = 1.0f / std::sqrt(static_cast<float>(config.key_dim + config.shared_key));
  return Rounded(LayerCase(std::move(name), config, 48), kThreeProducts);
}

// With a choice of this many pools of four tokens.
DeviceCase Choosing(std::string name, size_t most) {
  return Layer(
      std::move(name),
      {.heads = 4,
       .latent = 32,
       .key_dim = 16,
       .shared_key = 16,
       .value_dim = 16,
       .query_rank = 24,
       .selection = {.pool = 4, .most = most, .heads = 2, .key_dim = 32, .query_rank = 24}});
}

// Pools that score nearly alike may be chosen one for the other: the outputs have no bound.
DeviceCase OfFewPools(DeviceCase one) {
  one.exact = one.rounded = INFINITY;
  return one;
}

std::vector<DeviceCase> Cases() {
  return {Everywhere(Core("r16_p0", {2, 16, 0})),
          Everywhere(Core("r32_p16_h5", {5, 32, 16})),
          Core("r64_p7", {3, 64, 7}),
          Core("r128_p16_h19", {19, 128, 16}),
          Core("r256_p0", {4, 256, 0}),
          Core("r512_p64", {4, 512, 64}),
          Long(Core("r512_p64_long", {4, 512, 64})),
          Everywhere(
              Layer("layer_r32",
                    {.heads = 3, .latent = 32, .key_dim = 16, .shared_key = 16, .value_dim = 24})),
          Layer("layer_r512", {.heads = 4,
                               .latent = 512,
                               .key_dim = 64,
                               .shared_key = 64,
                               .value_dim = 64,
                               .query_rank = 96}),
          Everywhere(Choosing("layer_all_pools", 64)),
          OfFewPools(Choosing("layer_three_pools", 3))};
}

INSTANTIATE_TEST_SUITE_P(LatentAttention, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
