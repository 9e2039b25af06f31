// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/mamba2/mamba2_subject.h"
#include "kernels/mixers/mixer_suite_on_device.h"

namespace rivulet {
namespace {

DeviceCase Core(std::string name, const HeadShape& shape, double slowest = 0.01,
                double fastest = 0.5) {
  return CoreCase(std::move(name), shape,
                  [=](const HeadShape& own) { return MakeMamba2Subject(own, slowest, fastest); });
}

DeviceCase Layer(std::string name, const HeadShape& s) {
  return LayerCase(std::move(name), Mamba2Config{.heads = s.heads,
                                                 .head_dim = s.value_dim,
                                                 .state_size = s.key_dim,
                                                 .groups = s.groups,
                                                 .norm_groups = 1});
}

// Layers gate their outputs where they are computed: by one warp of a block, by several, of which
// the last may have less than others; not with keys of 256, nor with values that are padded.
std::vector<DeviceCase> Cases() {
  return {Everywhere(Core("n16_p16", {3, 1, 16, 16}, 0.1, 1.0)),
          Everywhere(Core("n24_p40", {4, 2, 24, 40})),
          Core("n16_p128_fast_decay", {2, 1, 16, 128}, 1.0, 16.0),
          Core("n32_p64_one_group", {6, 1, 32, 64}),
          Core("n48_p96", {4, 4, 48, 96}),
          Core("n64_p16", {8, 2, 64, 16}),
          Core("n64_p64", {8, 1, 64, 64}),
          Core("n96_p48", {4, 2, 96, 48}),
          Core("n128_p64", {8, 1, 128, 64}),
          Core("n128_p72", {4, 4, 128, 72}),
          Core("n128_p80", {4, 2, 128, 80}),
          Core("n128_p300", {2, 1, 128, 300}),
          Core("n256_p64", {4, 4, 256, 64}, 0.01, 0.1),
          Core("n512_p32", {2, 1, 512, 32}, 0.001, 0.05),
          Everywhere(Layer("layer_n16_p24", {4, 2, 16, 24})),
          Layer("layer_n64_p16", {8, 2, 64, 16}),
          Layer("layer_n64_p32", {6, 1, 64, 32}),
          Layer("layer_n128_p48", {4, 2, 128, 48}),
          Everywhere(Layer("layer_n128_p64", {4, 1, 128, 64})),
          Layer("layer_n128_p96", {2, 2, 128, 96}),
          Layer("layer_n256_p64", {2, 1, 256, 64})};
}

INSTANTIATE_TEST_SUITE_P(Mamba2, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
