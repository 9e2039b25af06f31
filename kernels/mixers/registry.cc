// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/strings.h"
#include "kernels/mixers/anna/anna.h"
#include "kernels/mixers/delta_net/delta_net.h"
#include "kernels/mixers/gated_deltanet/gated_deltanet.h"
#include "kernels/mixers/gla/gla.h"
#include "kernels/mixers/h3/h3.h"
#include "kernels/mixers/hla/hla.h"
#include "kernels/mixers/linear_attention/linear_attention.h"
#include "kernels/mixers/log_linear_gated_deltanet/log_linear_gated_deltanet.h"
#include "kernels/mixers/log_linear_mamba2/log_linear_mamba2.h"
#include "kernels/mixers/mamba/mamba.h"
#include "kernels/mixers/mamba2/mamba2.h"
#include "kernels/mixers/mixer.h"
#include "kernels/mixers/retnet/retnet.h"
#include "kernels/mixers/softmax_attention/softmax_attention.h"

namespace rivulet {
namespace {

// The list of mixers: adding one is a line here and its folder.
constexpr MixerEntry kMixers[] = {
    {"softmax_attention", MakeSoftmaxAttention},
    {"linear_attn", MakeLinearAttention},
    {"gla", MakeGla},
    {"delta_net", MakeDeltaNet},
    {"gated_deltanet", MakeGatedDeltaNet},
    {"retnet", MakeRetNet},
    {"mamba2", MakeMamba2},
    {"log_linear_mamba2", MakeLogLinearMamba2},
    {"hattention", MakeLogLinearMamba2},
    {"h_gated_deltanet", MakeLogLinearGatedDeltaNet},
    {"log_linear_gated_deltanet", MakeLogLinearGatedDeltaNet},
    {"hla", MakeHla},
    {"anna", MakeAnna},
    {"mamba", MakeMamba},
    {"h3", MakeH3},
};

}  // namespace

std::span<const MixerEntry> MixerRegistry() { return kMixers; }

absl::StatusOr<MixerFactory> FindMixer(std::string_view type) {
  std::string known;
  for (const MixerEntry& entry : kMixers) {
    if (entry.type == type) return entry.make;
    absl::StrAppend(&known, known.empty() ? "" : ", ", ToAbsl(entry.type));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no mixer \"", ToAbsl(type), "\"; this server has: ", known));
}

}  // namespace rivulet
