// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/json_body.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace rivulet::openai {
namespace {

using testing::HasSubstr;

TEST(FieldReaderTest, NamesTheFieldThatIsWrong) {
  const Json json = *ParseJson(
      R"({"t":1,"b":0,"n":"x","i":1.5,"c":-1,"l":9223372036854775808,"a":{},"o":[],"z":null})");
  const auto error = [&](auto read) {
    FieldReader reader(json, "p.");
    read(reader);
    return std::string(reader.status().message());
  };
  EXPECT_EQ(error([](FieldReader& r) { r.Text("t"); }), "p.t: it must be a string, not number");
  EXPECT_THAT(error([](FieldReader& r) { r.Bool("b"); }), HasSubstr("p.b: it must be true"));
  EXPECT_THAT(error([](FieldReader& r) { r.Number("n"); }), HasSubstr("p.n: it must be a number"));
  EXPECT_THAT(error([](FieldReader& r) { r.Integer("i"); }), HasSubstr("p.i: it must be an int"));
  EXPECT_THAT(error([](FieldReader& r) { r.Integer("l"); }), HasSubstr("p.l: 9223372036854775808"));
  EXPECT_THAT(error([](FieldReader& r) { r.Count("l"); }), HasSubstr("is too large"));
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
