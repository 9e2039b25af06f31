// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/log_linear_mamba2/log_linear_mamba2_subject.h"
#include "kernels/mixers/mixer_suite_on_device.h"

namespace rivulet {
namespace {

DeviceCase Core(std::string name, const HeadShape& shape, uint32_t levels, double slowest = 0.01,
                double fastest = 0.5) {
  return CoreCase(std::move(name), shape, [=](const HeadShape& own) {
    return std::make_unique<LogLinearMamba2Subject>(
        LogLinearMamba2Options{own, levels, slowest, fastest});
  });
}

DeviceCase Layer(std::string name, const HeadShape& s, uint32_t levels) {
  return LayerCase(std::move(name), Mamba2Config{.heads = s.heads,
                                                 .head_dim = s.value_dim,
                                                 .state_size = s.key_dim,
                                                 .groups = 1,
                                                 .norm_groups = 1,
                                                 .log_linear = true,
                                                 .max_levels = levels});
}

// Up to so many pages at the same time.
DeviceCase Long(DeviceCase one, size_t pages = 3) {
  one.tokens = (size_t{16} << pages) + 10;
  return one;
}

std::vector<DeviceCase> Cases() {
  return {Everywhere(Core("levels7_n16_p16", {3, 1, 16, 16}, 7)),
          Everywhere(Core("levels5_n24_p40", {2, 1, 24, 40}, 5)),
          Core("levels1_n16_p16", {3, 1, 16, 16}, 1),
          Long(Core("levels15_n32_p64", {4, 1, 32, 64}, 15)),
          Core("levels6_n64_p32", {4, 1, 64, 32}, 6, 0.001, 0.1),
          Long(Core("levels15_n128_p64", {4, 1, 128, 64}, 15)),
          // More pages than are added up at a time.
          WideStates(Long(Core("levels15_n16_nine_pages", {1, 1, 16, 16}, 15, 1e-4, 1e-3), 9)),
          Core("levels15_n16_p128_fast_decay", {2, 1, 16, 128}, 15, 1.0, 16.0),
          Core("levels15_n48_p80", {3, 1, 48, 80}, 15, 0.001, 0.05),
          Core("levels15_n96_p300", {1, 1, 96, 300}, 15),
          Core("levels15_n256_p72", {2, 1, 256, 72}, 15, 0.001, 0.05),
          Core("levels9_n512_p32", {2, 1, 512, 32}, 9, 0.001, 0.05),
          Everywhere(Layer("layer_n16_p24", {4, 1, 16, 24}, 15)),
          Layer("layer_n128_p64", {4, 1, 128, 64}, 15)};
}

INSTANTIATE_TEST_SUITE_P(LogLinearMamba2, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
