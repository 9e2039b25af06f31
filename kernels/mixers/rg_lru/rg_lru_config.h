// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A layer of the real-gated linear recurrent unit (docs/mixers.md#rg-lru).
#ifndef RIVULET_KERNELS_MIXERS_RG_LRU_RG_LRU_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_RG_LRU_RG_LRU_CONFIG_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

struct RgLruConfig {
  size_t width = 0;      // W, channels
  size_t blocks = 0;     // of the gates' maps; divides width
  size_t conv_size = 4;  // in [2, kMaxConvolutionWindow]
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const RgLruConfig& config,
                                                 const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_RG_LRU_RG_LRU_CONFIG_H_
