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
  const RopeConfig config = ParseRope(reader, head_dim);
  EXPECT_TRUE(reader.ok()) << reader.status();
  return config;
}

std::string Error(const char* text, size_t head_dim = 64) {
  const json object = json::parse(text);
  ConfigReader reader(object);
  ParseRope(reader, head_dim);
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

TEST(RopeConfigTest, RefusesByName) {
  for (const char* type : {"yarn", "dynamic", "longrope", "mrope"}) {
    const json config = {{"rope_scaling", {{"rope_type", type}, {"factor", 2}}}};
    EXPECT_THAT(Error(config.dump().c_str()), AllOf(HasSubstr(type), HasSubstr("llama3")));
  }
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
  EXPECT_THAT(Error(R"({"partial_rotary_factor": 0.4})"),
              HasSubstr("head of 64 it must leave an even"));
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
