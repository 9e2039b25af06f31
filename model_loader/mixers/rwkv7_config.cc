// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {
namespace {

// The width of a head: head_dim, 64 where it is missing; where it is null, as num_heads says.
size_t ReadHeadDim(ConfigReader& config, size_t hidden) {
  if (!config.IsNull("head_dim")) {
    const size_t width = config.Size("head_dim", 64, 1, kMaxKeyDim);
    config.RequireDivides(width, "head_dim", "hidden_size", hidden);
    config.Require(!config.Has("num_heads") || config.Size("num_heads") * width == hidden,
                   "num_heads",
                   absl::StrCat("hidden_size ", hidden, " has ", hidden / width,
                                " heads of head_dim ", width, "; leave num_heads out"));
    return width;
  }
  const size_t heads = config.Size("num_heads");
  config.RequireDivides(heads, "num_heads", "hidden_size", hidden);
  const size_t width = std::max<size_t>(1, hidden / heads);
  config.Require(
      width <= kMaxKeyDim, "num_heads",
      absl::StrCat("heads of ", width, " channels; more than ", kMaxKeyDim, " are not served"));
  return std::min(width, kMaxKeyDim);
}

// A rank: as given, `otherwise` where it is missing, and where it is null what fla computes of
// `factor` √hidden, to a multiple of 32.
size_t ReadRank(ConfigReader& config, const char* key, size_t otherwise, double factor,
                size_t hidden) {
  if (!config.IsNull(key)) return config.Size(key, otherwise);
  const double rank = factor * std::sqrt(static_cast<double>(hidden));
  return std::max<size_t>(32, static_cast<size_t>(std::nearbyint(rank / 32)) * 32);
}

}  // namespace

Rwkv7Config ParseRwkv7(ConfigReader& config, size_t hidden) {
  Rwkv7Config rwkv7;
  HeadShape& shape = rwkv7.shape;
  shape.key_dim = ReadHeadDim(config, hidden);
  shape.heads = shape.groups = std::max<size_t>(1, hidden / shape.key_dim);
  const size_t values = config.Size("value_dim", hidden);
  config.Require(values % hidden == 0, "value_dim",
                 absl::StrCat("it must be a multiple of hidden_size ", hidden));
  shape.value_dim = std::max<size_t>(1, values / shape.heads);
  // Heads wider than 64 have larger ranks, but for the gate.
  const double wide = static_cast<double>(shape.key_dim) / 64;
  rwkv7.ranks = {.decay = ReadRank(config, "decay_low_rank_dim", 64, 2.5 * wide, hidden),
                 .rate = ReadRank(config, "a_low_rank_dim", 64, 2.5 * wide, hidden),
                 .value = ReadRank(config, "v_low_rank_dim", 16, 1.7 * wide, hidden),
                 .gate = ReadRank(config, "gate_low_rank_dim", 128, 5.0, hidden)};
  rwkv7.fused_norm = config.Bool("fuse_norm", true);
  rwkv7.norm_eps = config.Eps("norm_eps", 1e-5);
  return rwkv7;
}

}  // namespace rivulet
