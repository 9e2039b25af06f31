// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/model_spec.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

json Mamba(const char* type = "mamba") {
  return {{"model_type", type}, {"vocab_size", 96}, {"hidden_size", 20}, {"num_hidden_layers", 2}};
}

json With(json config, const std::string& key, json value) {
  config[key] = std::move(value);
  return config;
}

std::string Error(const json& config) {
  const absl::Status status = ParseModelSpec(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(MambaFormatTest, NamesTheTensors) {
  const auto spec = ParseModelSpec(Mamba());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "mamba");
  EXPECT_EQ(spec->embeddings, "backbone.embeddings.weight");
  EXPECT_EQ(spec->final_norm.weight, "backbone.norm_f.weight");
  ASSERT_EQ(spec->layers.size(), 2u);
  EXPECT_EQ(spec->layers[1].mixer_type, "mamba");
  EXPECT_EQ(spec->layers[1].mixer_prefix, "backbone.layers.1.mixer.");
  EXPECT_EQ(spec->layers[1].mixer_norm.weight, "backbone.layers.1.norm.weight");
  EXPECT_TRUE(spec->layers[1].feed_forward_norm.empty());
  EXPECT_FALSE(std::get<MambaConfig>(spec->layers[1].mixer).use_scan_norms);
}

// transformers' MambaConfig and FalconMambaConfig tie unless told otherwise, Mamba2Config does not.
TEST(MambaFormatTest, TiesTheOutputMapByDefault) {
  EXPECT_TRUE(ParseModelSpec(Mamba())->tied());
  EXPECT_TRUE(ParseModelSpec(Mamba("falcon_mamba"))->tied());
  EXPECT_FALSE(ParseModelSpec(With(Mamba("mamba2"), "head_dim", 8))->tied());
  const auto untied = ParseModelSpec(With(Mamba(), "tie_word_embeddings", false));
  EXPECT_EQ(untied->lm_head, "lm_head.weight");
}

TEST(MambaFormatTest, FalconMambaIsMambaWithNormsInsideTheMixer) {
  const auto spec = ParseModelSpec(Mamba("falcon_mamba"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "falcon_mamba");
  EXPECT_EQ(spec->layers[0].mixer_type, "mamba");
  EXPECT_TRUE(std::get<MambaConfig>(spec->layers[0].mixer).use_scan_norms);
  EXPECT_EQ(std::get<MambaConfig>(spec->layers[0].mixer).scan_norm_eps, 1e-6f);
  const auto given = ParseModelSpec(With(Mamba("falcon_mamba"), "mixer_rms_eps", 1e-3));
  EXPECT_EQ(std::get<MambaConfig>(given->layers[0].mixer).scan_norm_eps, 1e-3f);
}

TEST(MambaFormatTest, TheWidthThatIsWrittenTwiceMustAgree) {
  EXPECT_TRUE(ParseModelSpec(With(Mamba(), "intermediate_size", 40)).ok());
  EXPECT_TRUE(ParseModelSpec(With(With(Mamba(), "intermediate_size", 30), "expand", 1.5)).ok());
  EXPECT_THAT(Error(With(Mamba(), "intermediate_size", 64)),
              AllOf(HasSubstr("intermediate_size is 64"), HasSubstr("40")));
  EXPECT_THAT(Error(With(Mamba("falcon_mamba"), "intermediate_size", 64)),
              HasSubstr("intermediate_size is 64"));
}

}  // namespace
}  // namespace rivulet
