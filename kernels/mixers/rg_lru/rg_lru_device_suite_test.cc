// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/mixer_suite_on_device.h"
#include "kernels/mixers/rg_lru/rg_lru_config.h"
#include "kernels/mixers/rg_lru/rg_lru_subject.h"

namespace rivulet {
namespace {

DeviceCase Core(std::string name, const RgLruSubjectShape& shape) {
  return WideStates({std::move(name), [=](DType) { return MakeRgLruSubject(shape); }});
}

std::vector<DeviceCase> Cases() {
  return {Everywhere(Core("w16_hardly_decays", {16, 1e-4, 1e-6})),
          Everywhere(Core("w33", {33, 1.0, 0.01})),
          Core("w1", {1, 0.5, 0.1}),
          Core("w128", {128, 1.0, 0.01}),
          Core("w600_forgets_at_once", {600, 200.0, 0.1}),
          Everywhere(WideStates(LayerCase("layer_w48", RgLruConfig{.width = 48, .blocks = 3}))),
          WideStates(LayerCase("layer_w512", RgLruConfig{.width = 512, .blocks = 4}, 64))};
}

INSTANTIATE_TEST_SUITE_P(RgLru, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
