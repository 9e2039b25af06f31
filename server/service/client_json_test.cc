// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/service/client_json.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rivulet {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string ParseError(const std::string& text) {
  const auto json = ParseClientJson(text, "the text");
  EXPECT_FALSE(json.ok()) << text.substr(0, 80);
  EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(json.status().message()), StartsWith("the text"));
  return std::string(json.status().message());
}

bool Parses(const std::string& text) { return ParseClientJson(text, "it").ok(); }

TEST(ClientJsonTest, KeepsOrderAndNumbers) {
  const std::string text = R"({"b":1,"a":[1.0,"é",null]})";
  EXPECT_EQ(ParseClientJson(text, "it")->dump(), text);
}

TEST(ClientJsonTest, SaysWhereTextIsNotJson) {
  EXPECT_THAT(ParseError("{\"a\":}"), HasSubstr("column 6"));
  for (const char* const text :
       {"", " ", "{", "[1,]", "{'a':1}", "{\"a\":1}}", "nul", "01", "NaN", "\"\\ud800\"",
        "\"\xff\"", "\"a\nb\"", "\"\\u00\"", "\xef\xbb", "\"", "\"\\", "{\"a\" 1}", "1e999"}) {
    ParseError(text);
  }
  ParseError(std::string("{}\0", 3));
  for (const char* const end : {"", "\xff", "\\x", "\n"}) {
    EXPECT_THAT(ParseError(std::string("{\"prompt\": \"a secret") + end), Not(HasSubstr("secret")));
  }
}

TEST(ClientJsonTest, DepthIsLimited) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(Parses(nested(ClientJsonLimits::kDeepest)));
  EXPECT_THAT(ParseError(nested(ClientJsonLimits::kDeepest + 1)), HasSubstr("nested too deeply"));
  ParseError(nested(1'000'000));
  ParseError(std::string(1'000'000, '{'));
  EXPECT_TRUE(Parses("\"" + std::string(1000, '[') + "\\\"" + std::string(1000, '{') + "\""));
}

// Looking through an object for each key takes quadratic time.
TEST(ClientJsonTest, KeysAndValuesAreLimited) {
  const auto object = [](size_t keys) {
    std::string text = "{";
    for (size_t i = 0; i < keys; ++i) absl::StrAppend(&text, i > 0 ? "," : "", "\"k", i, "\":0");
    return text + "}";
  };
  EXPECT_TRUE(Parses(object(ClientJsonLimits::kMostKeysOfAnObject)));
  EXPECT_THAT(ParseError(object(ClientJsonLimits::kMostKeysOfAnObject + 1)),
              HasSubstr("too many keys"));
  std::string many = "[";
  for (size_t i = 0; i <= ClientJsonLimits::kMostKeys; ++i)
    many += i > 0 ? ",{\"a\":0}" : "{\"a\":0}";
  EXPECT_THAT(ParseError(many + "]"), HasSubstr("too many keys"));
  std::string values = "[0";
  for (size_t i = 0; i <= ClientJsonLimits::kMostValues; ++i) values += ",0";
  EXPECT_THAT(ParseError(values + "]"), HasSubstr("too many values"));
}

TEST(ClientJsonTest, AKeyIsRefusedIfItIsThereTwice) {
  for (const char* const text :
       {R"({"a":1,"a":1})", R"({"a":1,"b":2,"\u0061":3})", R"([0,{"b":{"x":[{"a":{},"a":null}]}}])",
        R"({"b":{"a":{"c":":"}},"c":[],"b":"{","a":0})", R"({"b":1,"a":1,"b":2,"a":2})"}) {
    const bool first = text[2] == 'a' || text[1] == '0';
    EXPECT_THAT(ParseError(text), HasSubstr(first ? R"("a" is twice)" : R"("b" is twice)")) << text;
  }
  for (const char* const text : {R"({"a":{"a":{"a":1}},"A":2})", R"([{"a":1},{"a":1}])",
                                 R"({"a":"\"a\":1","b":"{\"a\":2}"})", R"({"":{}," ":[{"":0}]})"}) {
    EXPECT_TRUE(Parses(text)) << text;
  }
}

}  // namespace
}  // namespace rivulet
