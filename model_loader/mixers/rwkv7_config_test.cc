// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/mixers/testing.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kHidden = 768;

absl::StatusOr<Rwkv7Config> Parse(const char* json) {
  return ParseKeys(ParseRwkv7, nlohmann::json::parse(json), kHidden);
}

std::string ErrorOf(const char* keys) {
  return ParseError(ParseRwkv7, nlohmann::json::parse(keys), kHidden);
}

TEST(Rwkv7Config, DefaultsAreFlas) {
  const auto config = Parse("{}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shape.heads, 12u);
  EXPECT_EQ(config->shape.groups, 12u);
  EXPECT_EQ(config->shape.key_dim, 64u);
  EXPECT_EQ(config->shape.value_dim, 64u);
  EXPECT_EQ(config->ranks.decay, 64u);
  EXPECT_EQ(config->ranks.rate, 64u);
  EXPECT_EQ(config->ranks.value, 16u);
  EXPECT_EQ(config->ranks.gate, 128u);
  EXPECT_TRUE(config->fused_norm);
  EXPECT_FLOAT_EQ(config->norm_eps, 1e-5f);
}

TEST(Rwkv7Config, TakesWhatIsGiven) {
  const auto config = Parse(R"({"head_dim": 32, "num_heads": 24, "value_dim": 1536,
      "decay_low_rank_dim": 1, "a_low_rank_dim": 2, "v_low_rank_dim": 3, "gate_low_rank_dim": 4,
      "fuse_norm": false, "norm_eps": 1e-3})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shape.heads, 24u);
  EXPECT_EQ(config->shape.key_dim, 32u);
  EXPECT_EQ(config->shape.value_dim, 64u);
  EXPECT_EQ(config->ranks.decay, 1u);
  EXPECT_EQ(config->ranks.rate, 2u);
  EXPECT_EQ(config->ranks.value, 3u);
  EXPECT_EQ(config->ranks.gate, 4u);
  EXPECT_FALSE(config->fused_norm);
  EXPECT_FLOAT_EQ(config->norm_eps, 1e-3f);
}

// √768 = 27.7: 69.3 → 64, 138.6 → 128, 47.1 → 32.
TEST(Rwkv7Config, NullRanksFollowTheWidth) {
  const auto config = Parse(R"({"decay_low_rank_dim": null, "a_low_rank_dim": null,
      "v_low_rank_dim": null, "gate_low_rank_dim": null})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->ranks.decay, 64u);
  EXPECT_EQ(config->ranks.rate, 64u);
  EXPECT_EQ(config->ranks.value, 32u);
  EXPECT_EQ(config->ranks.gate, 128u);
  // Heads twice as wide: 138.6 → 128, 94.2 → 96; the gate's stays.
  const auto wide = Parse(R"({"head_dim": 128, "decay_low_rank_dim": null, "v_low_rank_dim": null,
      "gate_low_rank_dim": null})");
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ(wide->ranks.decay, 128u);
  EXPECT_EQ(wide->ranks.value, 96u);
  EXPECT_EQ(wide->ranks.gate, 128u);
}

TEST(Rwkv7Config, HeadsAreCountedWhereTheirWidthIsNull) {
  const auto config = Parse(R"({"head_dim": null, "num_heads": 6})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shape.heads, 6u);
  EXPECT_EQ(config->shape.key_dim, 128u);
}

TEST(Rwkv7Config, ErrorsNameKeyValueAndRemedy) {
  EXPECT_THAT(ErrorOf(R"({"head_dim": 100})"), AllOf(HasSubstr("head_dim"), HasSubstr("768")));
  EXPECT_THAT(ErrorOf(R"({"head_dim": 1024})"), HasSubstr("head_dim"));
  EXPECT_THAT(ErrorOf(R"({"num_heads": 6})"), AllOf(HasSubstr("num_heads"), HasSubstr("12 heads")));
  EXPECT_THAT(ErrorOf(R"({"head_dim": null})"), HasSubstr("num_heads"));
  EXPECT_THAT(ErrorOf(R"({"head_dim": null, "num_heads": 7})"), HasSubstr("num_heads"));
  EXPECT_THAT(ErrorOf(R"({"head_dim": null, "num_heads": 1})"), HasSubstr("num_heads"));
  EXPECT_THAT(ErrorOf(R"({"value_dim": 800})"), HasSubstr("multiple of hidden_size 768"));
  EXPECT_THAT(ErrorOf(R"({"decay_low_rank_dim": 0})"), HasSubstr("decay_low_rank_dim"));
  EXPECT_THAT(ErrorOf(R"({"fuse_norm": 1})"), HasSubstr("fuse_norm"));
  EXPECT_THAT(ErrorOf(R"({"norm_eps": 0})"), HasSubstr("norm_eps"));
}

}  // namespace
}  // namespace rivulet
