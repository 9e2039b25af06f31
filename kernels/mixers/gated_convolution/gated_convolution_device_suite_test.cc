// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "kernels/mixers/gated_convolution/gated_convolution_config.h"
#include "kernels/mixers/mixer_suite_on_device.h"

namespace rivulet {
namespace {

// Its recurrence is a convolution that a device computes while it prepares rows, so there is no
// core alone.
std::vector<DeviceCase> Cases() {
  return {Everywhere(WideStates(LayerCase("layer_w3", GatedConvolutionConfig{}))),
          WideStates(LayerCase("layer_w2_odd", GatedConvolutionConfig{.window = 2}, 72)),
          WideStates(
              LayerCase("layer_w4_bias", GatedConvolutionConfig{.window = 4, .bias = true}, 300)),
          WideStates(LayerCase("layer_w16", GatedConvolutionConfig{.window = 16}, 512))};
}

INSTANTIATE_TEST_SUITE_P(GatedConvolution, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
