// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

RopeConfig Parse(const char* text, size_t head_dim = 64) {
  const json object = json::parse(text);
  ConfigReader reader(object);
  const RopeConfig config = ParseRope(reader, {.head_dim = head_dim, .part = 1.0});
  EXPECT_TRUE(reader.ok()) << reader.status();
  return config;
}

std::string Error(const char* text, size_t head_dim = 64) {
  const json object = json::parse(text);
  ConfigReader reader(object);
  ParseRope(reader, {.head_dim = head_dim, .part = 1.0});
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(reader.status().message());
}

TEST(RopeConfigTest, DefaultsToTheWholeHeadWithoutScaling) {
  for (const char* text : {"{}", R"({"rope_theta": null, "rope_scaling": null})",
                           R"({"rope_scaling": {"type": "default"}})"}) {
    const RopeConfig config = Parse(text);
    EXPECT_EQ(config.theta, 10000.0f);
    EXPECT_EQ(config.rotary_dim, 64u);
    EXPECT_EQ(config.scaling, RopeScaling::kNone);
  }
}

TEST(RopeConfigTest, ReadsTransformers4) {
  const RopeConfig linear = Parse(
      R"({"rope_theta": 500, "partial_rotary_factor": 0.5, "rope_scaling": {"type": "linear", "factor": 4}})");
  EXPECT_EQ(linear.theta, 500.0f);
  EXPECT_EQ(linear.rotary_dim, 32u);
  EXPECT_EQ(linear.scaling, RopeScaling::kLinear);
  EXPECT_EQ(linear.factor, 4.0f);
  const RopeConfig llama = Parse(R"({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3",
      "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.5,
      "original_max_position_embeddings": 4096}})");
  EXPECT_EQ(llama.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(llama.factor, 8.0f);
  EXPECT_EQ(llama.low_freq_factor, 1.0f);
  EXPECT_EQ(llama.high_freq_factor, 4.5f);
  EXPECT_EQ(llama.original_max_position, 4096.0f);
}

TEST(RopeConfigTest, ReadsTransformers5) {
  const RopeConfig config = Parse(
      R"({"rope_parameters": {"rope_theta": 1e6, "rope_type": "linear", "factor": 2, "partial_rotary_factor": 0.25}})");
  EXPECT_EQ(config.theta, 1e6f);
  EXPECT_EQ(config.rotary_dim, 16u);
  EXPECT_EQ(config.scaling, RopeScaling::kLinear);
  EXPECT_EQ(Parse(R"({"rope_theta": 77, "rope_parameters": {"rope_type": "default"}})").theta,
            77.0f);
}

TEST(RopeConfigTest, ReadsYarn) {
  const RopeConfig yarn = Parse(R"({"max_position_embeddings": 999, "rope_parameters": {
      "rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 512,
      "beta_fast": 16, "truncate": false}})");
  EXPECT_EQ(yarn.scaling, RopeScaling::kYarn);
  EXPECT_EQ(yarn.factor, 4.0f);
  EXPECT_EQ(yarn.original_max_position, 512.0f);
  EXPECT_EQ(yarn.beta_fast, 16.0);
  EXPECT_EQ(yarn.beta_slow, 1.0);
  EXPECT_FALSE(yarn.whole_ramp);
  EXPECT_EQ(yarn.most_tokens, UINT64_MAX);
}

// The numbers are transformers 5.23's.
TEST(RopeConfigTest, YarnsAmplitudeFollowsFromTheFactorOrIsGiven) {
  const auto amplitude = [](const std::string& keys) {
    const std::string begin =
        R"({"max_position_embeddings": 4096, "rope_scaling": {"type": "yarn")";
    return Parse((begin + keys + "}}").c_str()).amplitude;
  };
  EXPECT_EQ(amplitude(R"(, "factor": 4)"), 1.138629436111989f);
  EXPECT_EQ(amplitude(R"(, "factor": 1)"), 1.0f);
  EXPECT_EQ(amplitude(R"(, "factor": 4, "attention_factor": 0.9)"), 0.9f);
  EXPECT_EQ(amplitude(R"(, "factor": 4, "mscale": 2)"), 1.138629436111989f);
  EXPECT_EQ(amplitude(R"(, "factor": 40, "mscale": 0.7, "mscale_all_dim": 1.1)"),
            0.8950365488551619f);
  EXPECT_EQ(amplitude(R"(, "original_max_position_embeddings": 1024)"), 1.138629436111989f);
}

TEST(RopeConfigTest, LongRopeEndsSessionsWhereItsFrequenciesWouldChange) {
  const std::string begin = R"({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4,
      "original_max_position_embeddings": 128, "short_factor": [1, 1.5, 2, 4], "long_factor": )";
  const RopeConfig rope =
      Parse((begin + R"([2, 3, 4, 5]}, "max_position_embeddings": 512})").c_str(), 8);
  EXPECT_EQ(rope.scaling, RopeScaling::kLong);
  EXPECT_THAT(rope.divisors, testing::ElementsAre(1.0f, 1.5f, 2.0f, 4.0f));
  EXPECT_EQ(rope.amplitude, 1.1338934190276817f);
  EXPECT_EQ(rope.most_tokens, 128u);
  const RopeConfig same =
      Parse((begin + R"([1, 1.5, 2, 4], "attention_factor": 1.5}})").c_str(), 8);
  EXPECT_EQ(same.amplitude, 1.5f);
  EXPECT_EQ(same.most_tokens, UINT64_MAX);
  EXPECT_THAT(Error((begin + "[2, 3]}}").c_str(), 8), HasSubstr("it must be a list of 4"));
}

TEST(RopeConfigTest, DynamicRopeIsTheDefaultOneUpToItsPositions) {
  const RopeConfig rope = Parse(R"({"max_position_embeddings": 4096, "rope_theta": 5e5,
      "rope_scaling": {"rope_type": "dynamic", "factor": 4.1}})");
  EXPECT_EQ(rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(rope.theta, 5e5f);
  EXPECT_EQ(rope.most_tokens, 4096u);
  EXPECT_THAT(Error(R"({"max_position_embeddings": 4096, "rope_scaling": {"type": "dynamic"}})"),
              HasSubstr("factor"));
}

// As transformers rounds: 64 · 0.4 = 25 dimensions, of which the last has a partner too.
TEST(RopeConfigTest, AnOddWidthRotatesOneMore) {
  const RopeConfig odd = Parse(R"({"partial_rotary_factor": 0.4})");
  EXPECT_EQ(odd.period, 25u);
  EXPECT_EQ(odd.rotary_dim, 26u);
  EXPECT_THAT(Error(R"({"rope_parameters": {"partial_rotary_factor": 0.4, "rope_type": "yarn",
      "factor": 2, "original_max_position_embeddings": 10}})"),
              HasSubstr("even number"));
}

// The number in config.json itself comes first, as in transformers.
TEST(RopeConfigTest, TheOuterOriginalPositionsComeFirst) {
  const RopeConfig rope = Parse(R"({"original_max_position_embeddings": 64, "rope_parameters": {
      "rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 512}})");
  EXPECT_EQ(rope.original_max_position, 64.0f);
}

TEST(RopeConfigTest, RefusesByName) {
  for (const char* type : {"proportional", "mrope"}) {
    const json config = {{"rope_scaling", {{"rope_type", type}, {"factor", 2}}}};
    EXPECT_THAT(Error(config.dump().c_str()), AllOf(HasSubstr(type), HasSubstr("yarn")));
  }
  EXPECT_THAT(Error(R"({"rope_scaling": {"type": "dynamic", "factor": 2}})"),
              HasSubstr("max_position_embeddings"));
  EXPECT_THAT(Error(R"({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}})"),
              HasSubstr("one set of parameters"));
  EXPECT_THAT(
      Error(R"({"rope_parameters": {"rope_theta": 5}, "rope_scaling": {"type": "linear"}})"),
      HasSubstr("keep one"));
  EXPECT_THAT(Error(R"({"rope_scaling": 3})"),
              HasSubstr("rope_scaling is 3: it must be an object"));
}

TEST(RopeConfigTest, NamesKeyValueAndRemedy) {
  EXPECT_THAT(Error(R"({"rope_theta": 0})"),
              HasSubstr("rope_theta is 0: it must be a number from 1"));
  EXPECT_THAT(Error(R"({"rope_parameters": {"rope_theta": 1e300}})"),
              HasSubstr("rope_theta is 1e+300"));
  EXPECT_THAT(Error(R"({"partial_rotary_factor": 1.5})"),
              HasSubstr("partial_rotary_factor is 1.5"));
  EXPECT_THAT(Error(R"({"partial_rotary_factor": 0.01})"),
              HasSubstr("head of 64 it must leave one dimension"));
  EXPECT_THAT(Error(R"({"partial_rotary_factor": {"__float__": "-Infinity"}})"),
              HasSubstr("rotary"));
  EXPECT_THAT(Error("{}", 33), HasSubstr("head size 33 cannot be rotated"));
  EXPECT_THAT(Error(R"({"rope_scaling": {"type": "linear"}})"), HasSubstr("factor is missing"));
  EXPECT_THAT(Error(R"({"rope_scaling": {"type": "linear", "factor": -1}})"),
              HasSubstr("factor is -1: it must be a number from 1e-06 to 1e+09"));
  for (const char* factor : {"0", "1e-300", "1e-40", "1e39"}) {
    const std::string linear = R"({"rope_scaling": {"type": "linear", "factor": )";
    EXPECT_THAT(Error((linear + factor + "}}").c_str()), HasSubstr("it must be a number from"));
  }
  EXPECT_THAT(Error(R"({"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4,
                         "high_freq_factor": 4, "original_max_position_embeddings": 10}})"),
              HasSubstr("high_freq_factor is 4: it must be above low_freq_factor 4"));
}

}  // namespace
}  // namespace rivulet
