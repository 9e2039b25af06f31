// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/mixers/testing.h"

namespace rivulet {
namespace {

using testing::HasSubstr;

constexpr size_t kHidden = 768;

TEST(Rwkv6Config, DefaultsAreFlas) {
  const auto config = ParseKeys(ParseRwkv6, nlohmann::json::object(), kHidden);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shape.heads, 4u);
  EXPECT_EQ(config->shape.groups, 4u);
  EXPECT_EQ(config->shape.key_dim, 96u);
  EXPECT_EQ(config->shape.value_dim, 192u);
  EXPECT_EQ(config->mixture_rank, 32u);
  EXPECT_EQ(config->decay_rank, 64u);
  EXPECT_FLOAT_EQ(config->norm_eps, 1e-5f);
}

TEST(Rwkv6Config, TakesWhatIsGivenAndRefusesTheRest) {
  const auto config = ParseKeys(ParseRwkv6, nlohmann::json::parse(R"({"num_heads": 6,
      "expand_k": 1, "expand_v": 2, "proj_low_rank_dim": 5, "gate_low_rank_dim": 7,
      "norm_eps": 1e-3})"),
                                kHidden);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shape.key_dim, 128u);
  EXPECT_EQ(config->shape.value_dim, 256u);
  EXPECT_EQ(config->mixture_rank, 5u);
  EXPECT_EQ(config->decay_rank, 7u);
  EXPECT_FLOAT_EQ(config->norm_eps, 1e-3f);
  const auto error = [](const char* keys) {
    return ParseError(ParseRwkv6, nlohmann::json::parse(keys), kHidden);
  };
  EXPECT_THAT(error(R"({"num_kv_heads": 2})"), HasSubstr("num_kv_heads"));
  EXPECT_THAT(error(R"({"num_heads": 5})"), HasSubstr("multiple of num_heads"));
  EXPECT_THAT(error(R"({"num_heads": 1, "expand_k": 1})"), HasSubstr("wider than 512"));
}

}  // namespace
}  // namespace rivulet
