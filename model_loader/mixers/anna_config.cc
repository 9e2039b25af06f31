// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {
namespace {

void ReadHeads(ConfigReader& config, size_t hidden, AnnaConfig& anna) {
  AnnaHashShape& hash = anna.hash;
  hash.heads = config.Size("num_heads", std::nullopt, 1, kMostHeads);
  config.Require(config.Size("num_kv_heads", hash.heads) == hash.heads, "num_kv_heads",
                 absl::StrCat("each head of anna hashes its keys with projections of its own, so "
                              "none are shared; it must be num_heads ",
                              hash.heads, " or left out"));
  hash.key_dim = ReadKeyDim(config, hidden, hash.heads);
  const double expand = config.Number("expand_v", 1.0);
  const double value_dim = std::floor(static_cast<double>(hash.key_dim) * expand);
  const bool sensible = value_dim >= 1 && value_dim <= kMaxKeyDim;
  config.Require(
      sensible, "expand_v",
      absl::StrCat("head_dim ", hash.key_dim, " times it must be from 1 to ", kMaxKeyDim));
  anna.shape.head.value_dim = sensible ? static_cast<size_t>(value_dim) : 1;
}

HashFamily ReadFamily(ConfigReader& config) {
  const std::string family = config.String("hash_family", "simhash");
  config.Require(family != "e2lsh", "hash_family",
                 "quantised random lines are not served; use simhash or cross_polytope");
  return config.Choice<HashFamily>(
      "hash_family", "simhash",
      {{"simhash", HashFamily::kSimHash}, {"cross_polytope", HashFamily::kCrossPolytope}});
}

// "2^6", or "(2 * 16)^2".
std::string BucketFormula(const AnnaHashShape& hash) {
  if (hash.family == HashFamily::kSimHash) return absl::StrCat("2^", hash.hashes);
  return absl::StrCat("(2 * ", hash.key_dim, ")^", hash.hashes);
}

// The hashes themselves are the index of a bucket, so they determine how many buckets there are.
void CheckBuckets(ConfigReader& config, const AnnaHashShape& hash) {
  if (!config.Has("hash_buckets")) return;
  const size_t given = config.Size("hash_buckets", std::nullopt, 1, kMaxBuckets);
  const bool simhash = hash.family == HashFamily::kSimHash;
  config.Require(
      given == hash.buckets(), "hash_buckets",
      absl::StrCat("num_hashes ", hash.hashes, " of ", simhash ? "simhash" : "cross_polytope",
                   " tell ", BucketFormula(hash), " = ", hash.buckets(), " buckets apart",
                   simhash ? ", a power of two" : "", "; set it to that or leave it out"));
}

void CheckBytes(ConfigReader& config, const AnnaConfig& anna) {
  const BucketShape& head = anna.shape.head;
  const double numbers = static_cast<double>(head.tables * head.buckets) *
                         static_cast<double>(anna.shape.heads * (head.padded_value() + 1));
  const double bytes = numbers * sizeof(float);
  config.Require(
      head.buckets <= kMaxBuckets && bytes <= kMaxBucketBytes, "num_hashes",
      absl::StrCat("num_heads ", anna.shape.heads, " times num_hash_tables ", head.tables,
                   " tables of ", BucketFormula(anna.hash), " buckets of ", head.value_dim,
                   " values each take more than ", kMaxBucketBytes,
                   " bytes a session and layer; use fewer num_hashes or num_hash_tables"));
}

void ReadTables(ConfigReader& config, AnnaConfig& anna) {
  AnnaHashShape& hash = anna.hash;
  hash.family = ReadFamily(config);
  hash.tables = config.Size("num_hash_tables", std::nullopt, 1, kMaxHashTables);
  hash.hashes = config.Size("num_hashes", std::nullopt, 1, kMaxHashes);
  anna.shape.heads = hash.heads;
  anna.shape.head.tables = hash.tables;
  anna.shape.head.buckets = hash.buckets();
  CheckBytes(config, anna);
  CheckBuckets(config, hash);
}

}  // namespace

AnnaConfig ParseAnna(ConfigReader& config, size_t hidden) {
  AnnaConfig anna;
  ReadHeads(config, hidden, anna);
  ReadTables(config, anna);
  anna.shape.include_self = config.Bool("anna_include_self", true);
  anna.norm_eps = config.Eps("norm_eps", 1e-6);
  if (config.Bool("use_short_conv", false)) anna.unused_conv_size = ReadConvSize(config);
  return anna;
}

}  // namespace rivulet
