// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/mixers/parsers.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/strings.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

TEST(MixerParsers, FindsEachMixerByItsName) {
  std::set<std::string_view> names;
  for (const MixerParser& parser : MixerParsers()) {
    EXPECT_TRUE(names.insert(parser.type).second) << parser.type << " is listed twice";
    EXPECT_EQ(FindMixerParser(parser.type), &parser);
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"linear_attn", "gla", "mamba2", "hla"}));
}

// A mixer whose config no name leads to could not be served, unless a format leads to it: MiniMax's
// decays depend on the number of layers, and Zamba2's layers share their blocks.
TEST(MixerParsers, LeadToEveryConfig) {
  std::set<size_t> configs = {MixerConfig(LightningAttentionConfig()).index(),
                              MixerConfig(SharedTransformerConfig()).index()};
  for (const MixerParser& parser : MixerParsers()) {
    const nlohmann::json keys = nlohmann::json::object();
    ConfigReader reader(keys);
    configs.insert(parser.parse(reader, 64).index());
  }
  EXPECT_EQ(configs.size(), std::variant_size_v<MixerConfig>);
}

TEST(MixerParsers, AnUnknownNameIsAnErrorThatListsTheKnownOnes) {
  const absl::Status status = ParseMixer("softmax", nlohmann::json::object(), 64).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ToStd(status.message())),
              testing::AllOf(testing::HasSubstr("\"softmax\""),
                             testing::HasSubstr("linear_attn, gla"), testing::HasSubstr("hla")));
}

}  // namespace
}  // namespace rivulet
