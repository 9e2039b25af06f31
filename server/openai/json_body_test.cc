// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/json_body.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace rivulet::openai {
namespace {

using testing::HasSubstr;

std::string ParseError(const std::string& text) {
  const auto json = ParseJson(text);
  EXPECT_FALSE(json.ok()) << text.substr(0, 80);
  EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(json.status().message());
}

TEST(ParseJsonTest, KeepsOrderAndNumbers) {
  const std::string text = R"({"b":1,"a":[1.0,"é",null]})";
  EXPECT_EQ(Dump(*ParseJson(text)), text);
}

TEST(ParseJsonTest, SaysWhereTextIsNotJson) {
  EXPECT_THAT(ParseError("{\"a\":}"), HasSubstr("column 6"));
  for (const char* const text :
       {"", " ", "{", "[1,]", "{'a':1}", "{\"a\":1}}", "nul", "01", "NaN", "\"\\ud800\"",
        "\"\xff\"", "\"a\nb\"", "\"\\u00\"", "\xef\xbb", "\"", "\"\\", "{\"a\" 1}", "1e999"}) {
    ParseError(text);
  }
  ParseError(std::string("{}\0", 3));
}

TEST(ParseJsonTest, DepthIsLimited) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(ParseJson(nested(kDeepestJson)).ok());
  EXPECT_THAT(ParseError(nested(kDeepestJson + 1)), HasSubstr("nested too deeply"));
  ParseError(nested(1'000'000));
  ParseError(std::string(1'000'000, '{'));
  EXPECT_TRUE(
      ParseJson("\"" + std::string(1000, '[') + "\\\"" + std::string(1000, '{') + "\"").ok());
}

// Looking through an object for each key takes quadratic time.
TEST(ParseJsonTest, KeysAndValuesAreLimited) {
  const auto object = [](size_t keys) {
    std::string text = "{";
    for (size_t i = 0; i < keys; ++i) absl::StrAppend(&text, i > 0 ? "," : "", "\"k", i, "\":0");
    return text + "}";
  };
  EXPECT_TRUE(ParseJson(object(kMostKeysOfAnObject)).ok());
  EXPECT_THAT(ParseError(object(kMostKeysOfAnObject + 1)), HasSubstr("too many keys"));
  std::string many = "[";
  for (size_t i = 0; i <= kMostKeys; ++i) many += i > 0 ? ",{\"a\":0}" : "{\"a\":0}";
  EXPECT_THAT(ParseError(many + "]"), HasSubstr("too many keys"));
  std::string values = "[0";
  for (size_t i = 0; i <= kMostValues; ++i) values += ",0";
  EXPECT_THAT(ParseError(values + "]"), HasSubstr("too many values"));
}

TEST(ParseJsonTest, AKeyIsRefusedIfItIsThereTwice) {
  for (const char* const text :
       {R"({"a":1,"a":1})", R"({"a":1,"b":2,"\u0061":3})", R"([0,{"b":{"x":[{"a":{},"a":null}]}}])",
        R"({"b":{"a":{"c":":"}},"c":[],"b":"{","a":0})", R"({"b":1,"a":1,"b":2,"a":2})"}) {
    const bool first = text[2] == 'a' || text[1] == '0';
    EXPECT_THAT(ParseError(text), HasSubstr(first ? R"("a" is twice)" : R"("b" is twice)")) << text;
  }
  for (const char* const text : {R"({"a":{"a":{"a":1}},"A":2})", R"([{"a":1},{"a":1}])",
                                 R"({"a":"\"a\":1","b":"{\"a\":2}"})", R"({"":{}," ":[{"":0}]})"}) {
    EXPECT_TRUE(ParseJson(text).ok()) << text;
  }
}

TEST(FieldReaderTest, NamesTheFieldThatIsWrong) {
  const Json json = *ParseJson(R"({"t":1,"b":0,"n":"x","i":1.5,"c":-1,"a":{},"o":[],"z":null})");
  const auto error = [&](auto read) {
    FieldReader reader(json, "p.");
    read(reader);
    return std::string(reader.status().message());
  };
  EXPECT_EQ(error([](FieldReader& r) { r.Text("t"); }), "p.t: it must be a string, not number");
  EXPECT_THAT(error([](FieldReader& r) { r.Bool("b"); }), HasSubstr("p.b: it must be true"));
  EXPECT_THAT(error([](FieldReader& r) { r.Number("n"); }), HasSubstr("p.n: it must be a number"));
  EXPECT_THAT(error([](FieldReader& r) { r.Integer("i"); }), HasSubstr("p.i: it must be an int"));
  EXPECT_THAT(error([](FieldReader& r) { r.Count("c"); }), HasSubstr("p.c: -1 is outside"));
  EXPECT_THAT(error([](FieldReader& r) { r.Array("a"); }), HasSubstr("p.a: it must be an array"));
  EXPECT_THAT(error([](FieldReader& r) { r.Object("o"); }), HasSubstr("p.o: it must be an object"));
  EXPECT_EQ(error([](FieldReader& r) { r.Object("z"); }), "");
  EXPECT_EQ(error([](FieldReader& r) { r.Refuse("z", ""); }), "");
  EXPECT_EQ(error([](FieldReader& r) { r.Refuse("b", "", 0); }), "");
  EXPECT_THAT(error([](FieldReader& r) { r.Refuse("b", "go away", 1); }), HasSubstr("go away"));
}

TEST(FieldReaderTest, UnknownFieldsAreRefused) {
  const Json json = *ParseJson(R"({"known":1,"other":2})");
  FieldReader reader(json, "");
  reader.Ignore("known");
  EXPECT_THAT(std::string(reader.Finish().message()), HasSubstr("other: there is no such"));
}

}  // namespace
}  // namespace rivulet::openai
