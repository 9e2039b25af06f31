// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/json_fields.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const json& Config() {
  static const json* const config = new json(json::parse(R"({
    "heads": 4, "ratio": 4.0, "half": 0.5, "minus": -1, "flag": true, "name": "elu", "nothing": null,
    "limit": [0.0, {"__float__": "Infinity"}], "nan": {"__float__": "NaN"}, "huge": 1e300,
    "enormous": 18446744073709551615
  })"));
  return *config;
}

template <typename T>
std::string Error(const absl::StatusOr<T>& result) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(result.status().message());
}

TEST(JsonFieldsTest, AnEpsIsBetweenZeroAndOne) {
  EXPECT_EQ(*EpsField(Config(), "half", std::nullopt), 0.5f);
  EXPECT_EQ(*EpsField(Config(), "missing", 1e-6), 1e-6f);
  for (const char* key : {"minus", "ratio", "huge"}) {
    EXPECT_THAT(Error(EpsField(Config(), key, 1e-6)), HasSubstr("must be between 0 and 1"));
  }
}

TEST(JsonFieldsTest, ReadsValuesOfTheirType) {
  EXPECT_EQ(*SizeField(Config(), "heads", std::nullopt), 4u);
  EXPECT_EQ(*SizeField(Config(), "ratio", std::nullopt), 4u);
  EXPECT_EQ(*NumberField(Config(), "half", std::nullopt), 0.5);
  EXPECT_EQ(*NumberField(Config(), "minus", std::nullopt), -1);
  EXPECT_EQ(*BoolField(Config(), "flag", std::nullopt), true);
  EXPECT_EQ(*StringField(Config(), "name", std::nullopt), "elu");
  EXPECT_EQ(*ChoiceField(Config(), "name", std::nullopt, {"relu", "elu"}), 1u);
  EXPECT_EQ(*NumberListField(Config(), "limit"), (std::vector<double>{0, HUGE_VAL}));
}

TEST(JsonFieldsTest, TakesNullForAbsent) {
  for (const char* key : {"absent", "nothing"}) {
    EXPECT_FALSE(HasField(Config(), key));
    EXPECT_EQ(*SizeField(Config(), key, 7), 7u);
    EXPECT_EQ(*BoolField(Config(), key, false), false);
    EXPECT_EQ(*StringField(Config(), key, "x"), "x");
    EXPECT_EQ(*ChoiceField(Config(), key, "b", {"a", "b"}), 1u);
    EXPECT_TRUE(NumberListField(Config(), key)->empty());
    EXPECT_THAT(Error(SizeField(Config(), key, std::nullopt)), HasSubstr("is missing"));
  }
}

TEST(JsonFieldsTest, NamesKeyValueAndRemedy) {
  EXPECT_THAT(Error(SizeField(Config(), "half", 1)), HasSubstr("half is 0.5: it must be a whole"));
  EXPECT_THAT(Error(SizeField(Config(), "heads", 1, 1, 3)), HasSubstr("from 1 to 3"));
  EXPECT_THAT(Error(BoolField(Config(), "heads", true)), HasSubstr("heads is 4: it must be true"));
  EXPECT_THAT(Error(NumberField(Config(), "name", 1.0)), HasSubstr("name is \"elu\""));
  EXPECT_THAT(Error(NumberField(Config(), "nan", 1.0)), HasSubstr("must be a number"));
  EXPECT_THAT(Error(ChoiceField(Config(), "name", "a", {"a", "b"})), HasSubstr("one of: a, b"));
}

TEST(JsonFieldsTest, NeverThrows) {
  for (const char* key : {"minus", "flag", "name", "limit", "nan", "huge", "enormous"}) {
    Error(SizeField(Config(), key, 1));
  }
  for (const json& object : {json(), json(3), json::array({1}), json("text")}) {
    EXPECT_FALSE(HasField(object, "key"));
    EXPECT_EQ(*SizeField(object, "key", 2), 2u);
    Error(StringField(object, "key", std::nullopt));
  }
  const json bytes = {{"name", "\xff\xfe"}};
  EXPECT_THAT(Error(SizeField(bytes, "name", 1)), HasSubstr("name is"));
}

}  // namespace
}  // namespace rivulet
