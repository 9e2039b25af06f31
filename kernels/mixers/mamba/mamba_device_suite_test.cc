// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/mamba/mamba_config.h"
#include "kernels/mixers/mamba/mamba_subject.h"
#include "kernels/mixers/mixer_suite_on_device.h"

namespace rivulet {
namespace {

DeviceCase Core(std::string name, const MambaShape& shape, double slowest, double fastest) {
  return WideStates(
      {std::move(name), [=](DType) { return MakeMambaSubject(shape, slowest, fastest); }});
}

DeviceCase Layer(std::string name, const MambaConfig& config) {
  return WideStates(LayerCase(std::move(name), config));
}

std::vector<DeviceCase> Cases() {
  return {Everywhere(Core("n1_i40", {40, 1}, 0.1, 1.0)),
          Everywhere(Core("n16_i33", {33, 16}, 0.001, 0.1)),
          Core("n8_i300", {300, 8}, 0.01, 16.0),
          Core("n16_i512", {512, 16}, 0.01, 16.0),
          Core("n24_i19", {19, 24}, 0.01, 1.0),
          Core("n32_i256", {256, 32}, 0.01, 1.0),
          Core("n37_i72", {72, 37}, 0.01, 1.0),
          Core("n64_i128", {128, 64}, 0.001, 1.0),
          Everywhere(Layer("layer_i48_n16", {.inner = 48, .state_size = 16, .rank = 4})),
          Layer("layer_i300_n24", {.inner = 300, .state_size = 24, .rank = 5, .use_bias = true}),
          Layer("layer_i128_n64_norms", {.inner = 128,
                                         .state_size = 64,
                                         .rank = 8,
                                         .use_scan_norms = true,
                                         .scan_norms_are_trained = true,
                                         .scan_norm_eps = 1e-6f})};
}

INSTANTIATE_TEST_SUITE_P(Mamba, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
