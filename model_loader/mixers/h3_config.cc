// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {
namespace {

// The state grows with head_dim · hidden.
constexpr size_t kMaxHeadDim = 64;

}  // namespace

H3Config ParseH3(ConfigReader& config, size_t hidden) {
  H3Config h3;
  h3.head_dim = config.Size("head_dim", 1, 1, kMaxHeadDim);
  config.RequireDivides(h3.head_dim, "head_dim", "hidden_size", hidden);
  h3.heads = hidden / h3.head_dim;
  h3.state_size = config.Size("d_state", 64, 2, kMaxKeyDim);
  config.Require(h3.state_size % 2 == 0, "d_state",
                 "it must be even: the diagonal SSM has d_state / 2 modes");
  h3.ssms = config.Size("n_ssm", h3.heads);
  config.Require(
      h3.ssms != 0 && h3.heads % h3.ssms == 0, "n_ssm",
      absl::StrCat("it must divide hidden_size / head_dim, ", h3.heads, ", without remainder"));
  h3.discretisation = config.Choice<Discretisation>(
      "discretization", "bilinear",
      {{"bilinear", Discretisation::kBilinear}, {"zoh", Discretisation::kZeroOrderHold}});
  return h3;
}

}  // namespace rivulet
