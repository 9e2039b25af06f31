// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {
namespace {

void ReadHeads(ConfigReader& config, size_t hidden, HeadShape& shape) {
  shape.heads = config.Size("num_heads", std::nullopt, 1, kMostHeads);
  shape.groups = config.Size("num_kv_heads", shape.heads, 1, kMostHeads);
  config.Require(shape.heads % shape.groups == 0, "num_kv_heads",
                 absl::StrCat("it must divide num_heads = ", shape.heads));
  shape.key_dim = ReadKeyDim(config, hidden, shape.heads);
  const float expand = config.Float("expand_v", 1.0, 0.0, kMaxKeyDim);
  const float value_dim = std::floor(static_cast<float>(shape.key_dim) * expand);
  config.Require(
      value_dim >= 1 && value_dim <= kMaxKeyDim, "expand_v",
      absl::StrCat("head_dim * expand_v = ", value_dim, " must be from 1 to ", kMaxKeyDim));
  shape.value_dim = static_cast<size_t>(value_dim);
}

// Which forms a variant has. AHLA has one, and ignores the key unless it says "paper".
void ReadForm(ConfigReader& config, HlaConfig& hla) {
  hla.variant = config.Choice<HlaVariant>("hla_variant", "symmetric",
                                          {{"symmetric", HlaVariant::kSymmetric},
                                           {"asymmetric", HlaVariant::kAsymmetric},
                                           {"third", HlaVariant::kThird}});
  hla.form = config.Choice<HlaForm>("hla_form", "masked",
                                    {{"masked", HlaForm::kMasked},
                                     {"serial", HlaForm::kSerial},
                                     {"none", HlaForm::kUnmasked},
                                     {"paper", HlaForm::kPaper}});
  const bool third = hla.variant == HlaVariant::kThird;
  const bool second_order = hla.form == HlaForm::kSerial || hla.form == HlaForm::kUnmasked;
  config.Require(!(third && second_order), "hla_form",
                 "the third order has the forms masked and paper");
  config.Require(third || hla.form != HlaForm::kPaper, "hla_form",
                 "only hla_variant third has it; the second order's are masked, serial, none");
}

void ReadRecurrence(ConfigReader& config, HlaConfig& hla) {
  ReadForm(config, hla);
  hla.use_decay = config.Bool("use_decay", false);
  hla.ridge_lambda = config.Float("ridge_lambda", 0.0, 0.0, 1e6);
  config.Require(hla.variant == HlaVariant::kSymmetric || hla.ridge_lambda == 0.0f, "ridge_lambda",
                 "only the symmetric variant has a ridge; leave it out");
  hla.normalize = config.Bool("normalize", false);
  hla.denom_eps = config.Float("denom_eps", 1e-6, 0.0, 1.0);
}

// The format does not say where q and k are rotated, and without an activation it does not matter:
// rotation, l2 norm and scale commute. After elu1 or relu it would, and numbers would turn
// negative.
void ReadQueriesAndKeys(ConfigReader& config, HlaConfig& hla) {
  hla.qk_activation = config.Choice<Activation>("qk_activation", "none",
                                                {{"none", Activation::kIdentity},
                                                 {"elu1", Activation::kEluPlusOne},
                                                 {"relu", Activation::kRelu}});
  hla.qk_l2_norm = config.Choice<bool>("qk_norm", "none", {{"none", false}, {"l2", true}});
  const double usual = 1.0 / std::sqrt(static_cast<double>(hla.shape.key_dim));
  hla.qk_scale = config.Float("qk_scale", usual, 1e-6, 1e6);
  if (!config.Has("rope_theta")) return;
  config.Require(hla.qk_activation == Activation::kIdentity, "rope_theta",
                 "rotated queries and keys are not non-negative; use qk_activation none or "
                 "rope_theta null");
  hla.rope = ParseRope(config, {.head_dim = hla.shape.key_dim, .part = 1.0});
}

}  // namespace

HlaConfig ParseHla(ConfigReader& config, size_t hidden) {
  HlaConfig hla;
  ReadHeads(config, hidden, hla.shape);
  ReadRecurrence(config, hla);
  ReadQueriesAndKeys(config, hla);
  const bool conv_bias = config.Bool("conv_bias", false);
  if (config.Bool("use_short_conv", false)) {
    config.Require(!conv_bias, "conv_bias",
                   "the short convolutions of hla have no bias; leave it out");
    hla.conv_size = ReadConvSize(config);
  }
  hla.use_output_gate = config.Bool("use_output_gate", true);
  hla.norm_eps = config.Float("norm_eps", 1e-5, 0.0, 1.0);
  return hla;
}

}  // namespace rivulet
