// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/anna/anna_config.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "kernels/recurrence/recurrence.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxHeads = 1024;

absl::StatusOr<size_t> ReadValueDim(const Json& json, size_t key_dim) {
  RIVULET_ASSIGN_OR_RETURN(const double expand, NumberField(json, "expand_v", 1.0));
  const double value_dim = std::floor(static_cast<double>(key_dim) * expand);
  if (value_dim >= 1 && value_dim <= kMaxKeyDim) return static_cast<size_t>(value_dim);
  return FieldError(json, "expand_v",
                    absl::StrCat("head_dim ", key_dim, " times it must be from 1 to ", kMaxKeyDim));
}

absl::Status ReadHeads(const Json& json, size_t hidden, AnnaConfig& config) {
  AnnaHashShape& hash = config.hash;
  RIVULET_ASSIGN_OR_RETURN(hash.heads, SizeField(json, "num_heads", std::nullopt, 1, kMaxHeads));
  RIVULET_ASSIGN_OR_RETURN(const size_t kv_heads, SizeField(json, "num_kv_heads", hash.heads));
  if (kv_heads != hash.heads) {
    return FieldError(json, "num_kv_heads",
                      absl::StrCat("each head of anna hashes its keys with projections of its own, "
                                   "so none are shared; it must be num_heads ",
                                   hash.heads, " or left out"));
  }
  const size_t usual = std::max<size_t>(1, hidden / hash.heads);
  RIVULET_ASSIGN_OR_RETURN(hash.key_dim, SizeField(json, "head_dim", usual, 1, kMaxKeyDim));
  if (hash.key_dim > kMaxKeyDim) {
    return FieldError(json, "head_dim",
                      absl::StrCat("hidden_size / num_heads = ", hash.key_dim,
                                   ", but heads wider than ", kMaxKeyDim, " are not served"));
  }
  RIVULET_ASSIGN_OR_RETURN(config.shape.head.value_dim, ReadValueDim(json, hash.key_dim));
  return absl::OkStatus();
}

absl::Status ReadFamily(const Json& json, AnnaHashShape& hash) {
  RIVULET_ASSIGN_OR_RETURN(
      const size_t family,
      ChoiceField(json, "hash_family", "simhash", {"simhash", "cross_polytope", "e2lsh"}));
  if (family == 2) {
    return FieldError(json, "hash_family",
                      "quantised random lines are not served; use simhash or cross_polytope");
  }
  hash.family = family == 0 ? HashFamily::kSimHash : HashFamily::kCrossPolytope;
  return absl::OkStatus();
}

// "2^6", or "(2 * 16)^2".
std::string BucketFormula(const AnnaHashShape& hash) {
  if (hash.family == HashFamily::kSimHash) return absl::StrCat("2^", hash.hashes);
  return absl::StrCat("(2 * ", hash.key_dim, ")^", hash.hashes);
}

// Buckets are indexed by the hashes themselves, so there are exactly as many as hashes tell apart.
absl::Status CheckBuckets(const Json& json, const AnnaHashShape& hash) {
  if (!HasField(json, "hash_buckets")) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(const size_t given,
                           SizeField(json, "hash_buckets", std::nullopt, 1, kMaxBuckets));
  if (given == hash.buckets()) return absl::OkStatus();
  const bool simhash = hash.family == HashFamily::kSimHash;
  return FieldError(
      json, "hash_buckets",
      absl::StrCat("num_hashes ", hash.hashes, " of ", simhash ? "simhash" : "cross_polytope",
                   " tell ", BucketFormula(hash), " = ", hash.buckets(), " buckets apart",
                   simhash ? ", a power of two" : "", "; set it to that or leave it out"));
}

absl::Status CheckBytes(const Json& json, const AnnaConfig& config) {
  const BucketShape& head = config.shape.head;
  const double numbers = static_cast<double>(head.tables * head.buckets) *
                         static_cast<double>(config.shape.heads * (head.padded_value() + 1));
  const double bytes = numbers * sizeof(float);
  if (head.buckets <= kMaxBuckets && bytes <= kMaxBucketBytes) return absl::OkStatus();
  return FieldError(
      json, "num_hashes",
      absl::StrCat("num_heads ", config.shape.heads, " times num_hash_tables ", head.tables,
                   " tables of ", BucketFormula(config.hash), " buckets of ", head.value_dim,
                   " values each take more than ", kMaxBucketBytes,
                   " bytes a session and layer; use fewer num_hashes or num_hash_tables"));
}

absl::Status ReadTables(const Json& json, AnnaConfig& config) {
  AnnaHashShape& hash = config.hash;
  RIVULET_RETURN_IF_ERROR(ReadFamily(json, hash));
  RIVULET_ASSIGN_OR_RETURN(hash.tables,
                           SizeField(json, "num_hash_tables", std::nullopt, 1, kMaxHashTables));
  RIVULET_ASSIGN_OR_RETURN(hash.hashes, SizeField(json, "num_hashes", std::nullopt, 1, kMaxHashes));
  config.shape.heads = hash.heads;
  config.shape.head.tables = hash.tables;
  config.shape.head.buckets = hash.buckets();
  RIVULET_RETURN_IF_ERROR(CheckBytes(json, config));
  RIVULET_RETURN_IF_ERROR(CheckBuckets(json, hash));
  RIVULET_ASSIGN_OR_RETURN(config.shape.include_self, BoolField(json, "anna_include_self", true));
  return absl::OkStatus();
}

absl::Status ReadRest(const Json& json, AnnaConfig& config) {
  RIVULET_ASSIGN_OR_RETURN(config.norm_eps, EpsField(json, "norm_eps", 1e-6));
  RIVULET_ASSIGN_OR_RETURN(const bool convolutions, BoolField(json, "use_short_conv", false));
  if (!convolutions) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(config.unused_conv_size,
                           SizeField(json, "conv_size", 4, 2, kFoldInterval));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AnnaConfig> ParseAnnaConfig(const Json& json, size_t hidden,
                                           const MixerOptions& options) {
  if (options.state_dtype != DType::kFloat32) {
    return absl::InvalidArgumentError(
        "anna keeps sums and counts that only grow and would stop moving in --state-dtype bf16; "
        "use --state-dtype fp32");
  }
  AnnaConfig config;
  RIVULET_RETURN_IF_ERROR(ReadHeads(json, hidden, config));
  RIVULET_RETURN_IF_ERROR(ReadTables(json, config));
  RIVULET_RETURN_IF_ERROR(ReadRest(json, config));
  return config;
}

}  // namespace rivulet
