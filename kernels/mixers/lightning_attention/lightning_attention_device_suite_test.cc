// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/lightning_attention/lightning_attention_config.h"
#include "kernels/mixers/lightning_attention/lightning_attention_subject.h"
#include "kernels/mixers/mixer_suite_on_device.h"

namespace rivulet {
namespace {

DeviceCase Core(std::string name, const HeadShape& shape) {
  return CoreCase(std::move(name), shape,
                  [](const HeadShape& own) { return MakeLightningAttentionSubject(own); });
}

DeviceCase Layer(std::string name, size_t heads, size_t head_dim) {
  return WideStates(
      LayerCase(std::move(name),
                LightningAttentionConfig{
                    .heads = heads, .head_dim = head_dim, .log_decay = LightningDecays(heads)}));
}

std::vector<DeviceCase> Cases() {
  return {Everywhere(Core("d24", {2, 2, 24, 24})),
          Core("d64", {4, 4, 64, 64}),
          Core("d128", {3, 3, 128, 128}),
          Everywhere(Layer("layer_d16", 2, 16)),
          Layer("layer_d40", 3, 40),
          Layer("layer_d128", 2, 128)};
}

INSTANTIATE_TEST_SUITE_P(LightningAttention, DeviceMixerSuite,
                         testing::ValuesIn(OnDevices(Cases())), DeviceCaseName);

}  // namespace
}  // namespace rivulet
