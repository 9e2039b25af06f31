// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/fla_heads.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "kernels/mixers/json_fields.h"
#include "kernels/recurrence/recurrence.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

// The width of one of `heads` heads that share int(hidden · expansion) columns.
absl::StatusOr<size_t> HeadWidth(const nlohmann::json& json, std::string_view key, double otherwise,
                                 size_t hidden, size_t heads) {
  RIVULET_ASSIGN_OR_RETURN(const double expand, NumberField(json, key, otherwise));
  const double columns = std::floor(static_cast<double>(hidden) * expand);
  const bool sensible = columns >= 1 && columns <= static_cast<double>(kLargestSize);
  if (sensible && static_cast<size_t>(columns) % heads == 0) {
    return static_cast<size_t>(columns) / heads;
  }
  const std::string remedy =
      absl::StrCat("hidden_size ", hidden, " times it must be a multiple of num_heads ", heads,
                   " from 1 to ", kLargestSize);
  if (HasField(json, key)) return FieldError(json, key, remedy);
  return absl::InvalidArgumentError(
      absl::StrCat(ToAbsl(key), " is absent and so ", otherwise, ": ", remedy));
}

}  // namespace

absl::StatusOr<FlaHeads> ParseFlaHeads(const nlohmann::json& json, size_t hidden,
                                       double default_expand_k, double default_expand_v,
                                       size_t default_heads) {
  FlaHeads result;
  RIVULET_ASSIGN_OR_RETURN(result.heads, SizeField(json, "num_heads", default_heads));
  RIVULET_ASSIGN_OR_RETURN(result.kv_heads, SizeField(json, "num_kv_heads", result.heads));
  if (result.heads % result.kv_heads != 0) {
    return FieldError(json, "num_kv_heads",
                      absl::StrCat("must divide num_heads ", result.heads, " without remainder"));
  }
  RIVULET_ASSIGN_OR_RETURN(result.key_dim,
                           HeadWidth(json, "expand_k", default_expand_k, hidden, result.heads));
  RIVULET_ASSIGN_OR_RETURN(result.value_dim,
                           HeadWidth(json, "expand_v", default_expand_v, hidden, result.heads));
  return result;
}

absl::Status CheckKeyWidth(const FlaHeads& heads) {
  if (heads.key_dim <= kMaxKeyDim) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("heads of key width ", heads.key_dim, " are wider than ", kMaxKeyDim,
                   ": use more heads (num_heads) or a smaller expand_k"));
}

}  // namespace rivulet
