// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/mixers/testing.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

nlohmann::json Keys(const char* changes) {
  nlohmann::json keys = {{"num_heads", 4}, {"num_hash_tables", 8}, {"num_hashes", 4}};
  keys.update(nlohmann::json::parse(changes));
  return keys;
}

absl::StatusOr<AnnaConfig> Parse(const char* changes) {
  return ParseKeys(ParseAnna, Keys(changes), 64);
}

std::string ErrorOf(const char* changes) { return ParseError(ParseAnna, Keys(changes), 64); }

TEST(AnnaConfig, Defaults) {
  const auto config = Parse("{}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->hash.family, HashFamily::kSimHash);
  EXPECT_EQ(config->hash.key_dim, 16u);
  EXPECT_EQ(config->shape.heads, 4u);
  EXPECT_EQ(config->shape.head.tables, 8u);
  EXPECT_EQ(config->shape.head.buckets, 16u);
  EXPECT_EQ(config->shape.head.value_dim, 16u);
  EXPECT_TRUE(config->shape.include_self);
  EXPECT_FLOAT_EQ(config->norm_eps, 1e-6f);
  EXPECT_EQ(config->unused_conv_size, 0u);
}

TEST(AnnaConfig, ReadsEveryKey) {
  const auto config = Parse(R"({"head_dim": 5, "expand_v": 4, "hash_family": "cross_polytope",
      "num_hashes": 2, "hash_buckets": 100, "anna_include_self": false, "norm_eps": 1e-5,
      "num_kv_heads": 4, "use_short_conv": true, "conv_size": 3})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->hash.family, HashFamily::kCrossPolytope);
  EXPECT_EQ(config->hash.key_dim, 5u);
  EXPECT_EQ(config->shape.head.buckets, 100u);
  EXPECT_EQ(config->shape.head.value_dim, 20u);
  EXPECT_FALSE(config->shape.include_self);
  EXPECT_FLOAT_EQ(config->norm_eps, 1e-5f);
  EXPECT_EQ(config->unused_conv_size, 3u);
}

TEST(AnnaConfig, ATableHasAsManyBucketsAsItsHashesTellApart) {
  EXPECT_EQ(ErrorOf(R"({"hash_buckets": 16})"), "no error");
  EXPECT_THAT(ErrorOf(R"({"hash_buckets": 48})"),
              AllOf(HasSubstr("hash_buckets is 48"), HasSubstr("num_hashes 4"),
                    HasSubstr("2^4 = 16"), HasSubstr("power of two")));
  EXPECT_THAT(ErrorOf(R"({"hash_buckets": 32})"), HasSubstr("hash_buckets is 32"));
  EXPECT_THAT(ErrorOf(R"({"hash_buckets": 1024, "hash_family": "cross_polytope",
                          "num_hashes": 1})"),
              AllOf(HasSubstr("hash_buckets is 1024"), HasSubstr("(2 * 16)^1 = 32")));
}

TEST(AnnaConfig, TablesThatTakeTooMuchMemoryAreRefused) {
  const std::string message = ErrorOf(R"({"num_hashes": 20})");
  EXPECT_THAT(message, AllOf(HasSubstr("num_hashes is 20"), HasSubstr("num_heads 4"),
                             HasSubstr("num_hash_tables 8"), HasSubstr("2^20"),
                             HasSubstr("1073741824 bytes"), HasSubstr("fewer num_hashes")));
  // 4 heads · 8 tables · 2^18 buckets · 17 numbers is more than 2^28 numbers; half of it is not.
  EXPECT_NE(ErrorOf(R"({"num_hashes": 19})"), "no error");
  EXPECT_EQ(ErrorOf(R"({"num_hashes": 18})"), "no error");
  EXPECT_NE(ErrorOf(R"({"num_hashes": 24, "num_heads": 1, "num_hash_tables": 1})"), "no error");
  EXPECT_THAT(ErrorOf(R"({"num_hashes": 24, "hash_family": "cross_polytope"})"),
              HasSubstr("(2 * 16)^24"));
}

TEST(AnnaConfig, ErrorsNameKeyValueAndRemedy) {
  EXPECT_THAT(ErrorOf(R"({"num_heads": null})"), HasSubstr("num_heads is missing"));
  EXPECT_THAT(ErrorOf(R"({"num_hash_tables": null})"), HasSubstr("num_hash_tables is missing"));
  EXPECT_THAT(ErrorOf(R"({"num_hash_tables": 257})"),
              AllOf(HasSubstr("num_hash_tables is 257"), HasSubstr("1 to 256")));
  EXPECT_THAT(ErrorOf(R"({"num_hashes": 0})"), HasSubstr("num_hashes is 0"));
  EXPECT_THAT(ErrorOf(R"({"num_kv_heads": 2})"),
              AllOf(HasSubstr("num_kv_heads is 2"), HasSubstr("num_heads 4")));
  EXPECT_THAT(ErrorOf(R"({"hash_family": "e2lsh"})"),
              AllOf(HasSubstr("e2lsh"), HasSubstr("use simhash or cross_polytope")));
  EXPECT_THAT(ErrorOf(R"({"hash_family": "minhash"})"),
              AllOf(HasSubstr("minhash"), HasSubstr("cross_polytope")));
  EXPECT_THAT(ErrorOf(R"({"head_dim": 600})"), HasSubstr("head_dim is 600"));
  EXPECT_THAT(ErrorOf(R"({"expand_v": 0.01})"),
              AllOf(HasSubstr("expand_v is 0.01"), HasSubstr("head_dim 16")));
  EXPECT_THAT(ErrorOf(R"({"anna_include_self": 1})"), HasSubstr("anna_include_self is 1"));
  EXPECT_THAT(ErrorOf(R"({"norm_eps": 1})"), HasSubstr("norm_eps is 1"));
  EXPECT_THAT(ErrorOf(R"({"use_short_conv": true, "conv_size": 1})"), HasSubstr("conv_size is 1"));
}

TEST(AnnaConfig, ABFloat16StateIsRefused) {
  EXPECT_THAT(BFloat16Error(ParseAnna, Keys("{}"), 64),
              AllOf(HasSubstr("anna"), HasSubstr("use --state-dtype fp32")));
}

}  // namespace
}  // namespace rivulet
