// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/mixers/testing.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

absl::StatusOr<LatentAttentionConfig> Parse(const char* json) {
  return ParseKeys(ParseLatentAttention, nlohmann::json::parse(json), 48);
}

std::string ErrorOf(const char* keys) {
  return ParseError(ParseLatentAttention, nlohmann::json::parse(keys), 48);
}

TEST(LatentAttentionConfig, DefaultsAreKimiLinears) {
  const auto config = Parse("{}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->heads, 32u);
  EXPECT_EQ(config->latent, 512u);
  EXPECT_EQ(config->query(), 32u * 192);
  EXPECT_EQ(config->value_dim, 128u);
  EXPECT_EQ(config->query_rank, 0u);
  EXPECT_FLOAT_EQ(config->scale, 1 / std::sqrt(192.0f));
  EXPECT_EQ(config->norm_eps, 1e-6f);
}

TEST(LatentAttentionConfig, TakesWhatIsGiven) {
  const auto config = Parse(R"({"num_attention_heads": 3, "kv_lora_rank": 20, "q_lora_rank": 7,
      "qk_nope_head_dim": 8, "qk_rope_head_dim": 0, "v_head_dim": 5, "attention_bias": true})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->heads, 3u);
  EXPECT_EQ(config->query_rank, 7u);
  EXPECT_EQ(config->shared_key, 0u);
  EXPECT_TRUE(config->bias);
}

TEST(LatentAttentionConfig, ErrorsNameKeyAndValue) {
  EXPECT_THAT(ErrorOf(R"({"kv_lora_rank": 513})"),
              AllOf(HasSubstr("kv_lora_rank is 513"), HasSubstr("512")));
  EXPECT_THAT(ErrorOf(R"({"v_head_dim": 0})"), HasSubstr("v_head_dim is 0"));
  EXPECT_THAT(ErrorOf(R"({"rope_theta": 10000})"),
              AllOf(HasSubstr("rope_theta is 10000"), HasSubstr("not served")));
}

}  // namespace
}  // namespace rivulet
