// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// An ANNA layer (docs/mixers.md#anna-format).
#ifndef RIVULET_KERNELS_MIXERS_ANNA_ANNA_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_ANNA_ANNA_CONFIG_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/mixers/anna/anna_hash.h"
#include "kernels/mixers/anna/anna_recurrence.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

// The most bytes of buckets that one layer may keep for one session.
inline constexpr size_t kMaxBucketBytes = size_t{1} << 30;

struct AnnaConfig {
  AnnaHashShape hash = {};
  AnnaShape shape = {};  // its heads, tables and buckets are those of `hash`
  float norm_eps = 1e-6f;
  // Other mixers of a hybrid use short convolutions of this size, and its file holds them for this
  // layer too, which has none: those tensors are left out. 0: there are none.
  size_t unused_conv_size = 0;
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const AnnaConfig& config,
                                                 const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_ANNA_ANNA_CONFIG_H_
