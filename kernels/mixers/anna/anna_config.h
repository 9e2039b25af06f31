// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What config.json decides about an ANNA layer (docs/mixers.md#anna-format).
#ifndef RIVULET_KERNELS_MIXERS_ANNA_ANNA_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_ANNA_ANNA_CONFIG_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "kernels/mixers/anna/anna_hash.h"
#include "kernels/mixers/anna/anna_recurrence.h"
#include "kernels/mixers/mixer.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// The most bytes of buckets that one layer may keep for one session.
inline constexpr size_t kMaxBucketBytes = size_t{1} << 30;

struct AnnaConfig {
  AnnaHashShape hash;
  AnnaShape shape;
  float norm_eps = 1e-6f;
  // Other mixers of a hybrid use short convolutions of this size, and so does its file for this
  // layer, which has none: the tensors are left out. 0: there are none.
  size_t unused_conv_size = 0;
};

// INVALID_ARGUMENT names the key, its value and the remedy.
absl::StatusOr<AnnaConfig> ParseAnnaConfig(const nlohmann::json& json, size_t hidden,
                                           const MixerOptions& options);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_ANNA_ANNA_CONFIG_H_
