// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/json.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model_loader/testing.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Error(const std::string& text) {
  const auto result = ParseJson(text, "x.json");
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(result.status().message());
}

TEST(JsonTest, ReadsPythonFloatsOutsideOfStrings) {
  const auto value =
      ParseJson(R"({"a": [0.0, Infinity], "b": -Infinity, "c": NaN, "d": "NaN \" NaN"})", "x.json");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ((*value)["a"][1]["__float__"], "Infinity");
  EXPECT_EQ((*value)["b"]["__float__"], "-Infinity");
  EXPECT_EQ((*value)["c"]["__float__"], "NaN");
  EXPECT_EQ((*value)["d"], "NaN \" NaN");
}

TEST(JsonTest, SaysWhereTextIsWrong) {
  EXPECT_THAT(Error("{\n\"a\": }"), AllOf(HasSubstr("x.json"), HasSubstr("line 2, column 6")));
  EXPECT_THAT(Error("{\"a\": 1e999}"), HasSubstr("number"));
  EXPECT_THAT(Error("{\"a\": \"\xff\"}"), HasSubstr("UTF-8"));
  EXPECT_THAT(Error("\"\\"), HasSubstr("not valid JSON"));
  EXPECT_THAT(Error(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(Error(std::string(1000000, '[')), HasSubstr("deeper than 64"));
  EXPECT_THAT(Error("\x89PNG\r\n"), HasSubstr("last read: '\\x89'")) << "for a terminal";
}

TEST(JsonTest, ReadsObjectsFromFiles) {
  const std::string path = TestDirectory() + "/x.json";
  EXPECT_EQ(ReadJsonObject(path, 100).status().code(), absl::StatusCode::kNotFound);
  WriteTestFile(path, "{\"a\": 1}");
  EXPECT_EQ((*ReadJsonObject(path, 100))["a"], 1);
  EXPECT_THAT(ReadJsonObject(path, 5).status().ToString(), HasSubstr("the limit is 5"));
  WriteTestFile(path, "[1]");
  EXPECT_THAT(ReadJsonObject(path, 100).status().ToString(),
              HasSubstr("not contain a JSON object"));
}

// Flipped and lost bytes give a value or a status, never a crash.
TEST(JsonTest, SurvivesRandomDamage) {
  std::mt19937 random(TestSeed());
  const std::string text =
      R"({"vocab_size": 256, "layer_types": ["hla", "gla"], "limit": [0.0, Infinity], "attn": null})";
  for (int i = 0; i < 5000; ++i) {
    std::string damaged = text;
    for (unsigned flips = random() % 4; flips-- > 0;) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) damaged.resize(random() % damaged.size());
    if (const auto value = ParseJson(damaged, "x.json"); value.ok()) {
      EXPECT_FALSE(value->is_discarded());
    }
  }
}

}  // namespace
}  // namespace rivulet
