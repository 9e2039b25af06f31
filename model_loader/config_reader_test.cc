// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/config_reader.h"

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
    "enormous": 18446744073709551615, "layers": [2, 0]
  })"));
  return *config;
}

// The error of one read.
template <typename Read>
std::string Error(Read read, const json& object = Config()) {
  ConfigReader config(object);
  read(config);
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message());
}

TEST(ConfigReaderTest, AnEpsIsBetweenZeroAndOne) {
  ConfigReader config(Config());
  EXPECT_EQ(config.Eps("half", 1e-6), 0.5f);
  EXPECT_EQ(config.Eps("missing", 1e-6), 1e-6f);
  EXPECT_TRUE(config.ok());
  for (const char* key : {"minus", "ratio", "huge"}) {
    EXPECT_THAT(Error([&](ConfigReader& c) { c.Eps(key, 1e-6); }),
                HasSubstr("must be between 0 and 1"));
  }
}

TEST(ConfigReaderTest, ReadsValuesOfTheirType) {
  ConfigReader config(Config());
  EXPECT_EQ(config.Size("heads"), 4u);
  EXPECT_EQ(config.Size("ratio"), 4u);
  EXPECT_EQ(config.Number("half"), 0.5);
  EXPECT_EQ(config.Number("minus"), -1);
  EXPECT_EQ(config.Bool("flag"), true);
  EXPECT_EQ(config.String("name"), "elu");
  EXPECT_EQ(config.Choice<int>("name", "", {{"relu", 7}, {"elu", 8}}), 8);
  EXPECT_EQ(config.Numbers("limit"), (std::vector<double>{0, HUGE_VAL}));
  EXPECT_EQ(config.Layers("layers", 3), (std::vector<size_t>{2, 0}));
  EXPECT_EQ(config.Spelling({"nheads", "heads"}), "heads");
  EXPECT_EQ(config.Spelling({"nheads", "num_heads"}), "nheads");
  EXPECT_TRUE(config.ok()) << config.status();
}

TEST(ConfigReaderTest, TakesNullForAbsent) {
  for (const char* key : {"absent", "nothing"}) {
    ConfigReader config(Config());
    EXPECT_FALSE(config.Has(key));
    EXPECT_EQ(config.IsNull(key), std::string(key) == "nothing");
    EXPECT_EQ(config.Size(key, 7), 7u);
    EXPECT_EQ(config.Bool(key, false), false);
    EXPECT_EQ(config.String(key, "x"), "x");
    EXPECT_EQ(config.Choice<int>(key, "b", {{"a", 1}, {"b", 2}}), 2);
    EXPECT_TRUE(config.Numbers(key).empty());
    EXPECT_TRUE(config.ok());
    EXPECT_THAT(Error([&](ConfigReader& c) { c.Size(key); }), HasSubstr("is missing"));
  }
}

TEST(ConfigReaderTest, NamesKeyValueAndRemedy) {
  EXPECT_THAT(Error([](ConfigReader& c) { c.Size("half", 1); }),
              HasSubstr("half is 0.5: it must be a whole"));
  EXPECT_THAT(Error([](ConfigReader& c) { c.Size("heads", 1, 1, 3); }), HasSubstr("from 1 to 3"));
  EXPECT_THAT(Error([](ConfigReader& c) { c.Bool("heads", true); }),
              HasSubstr("heads is 4: it must be true"));
  EXPECT_THAT(Error([](ConfigReader& c) { c.Number("name", 1.0); }),
              HasSubstr("name is \"elu\": it must be a number"));
  EXPECT_THAT(Error([](ConfigReader& c) { c.Number("nan", 1.0); }), HasSubstr("must be a number"));
  EXPECT_THAT(Error([](ConfigReader& c) { c.Number("heads", 1.0, 0, 2.5); }),
              HasSubstr("heads is 4: it must be a number from 0 to 2.5"));
  EXPECT_THAT(Error([](ConfigReader& c) {
                c.Choice<int>("name", "a", {{"a", 1}, {"b", 2}});
              }),
              HasSubstr("one of: a, b"));
  EXPECT_THAT(Error([](ConfigReader& c) { c.Layers("layers", 2); }),
              HasSubstr("layers is [2,0]: its entries must be layers, from 0 to 1"));
}

TEST(ConfigReaderTest, KeepsTheFirstErrorAndGoesOn) {
  ConfigReader config(Config());
  EXPECT_EQ(config.Size("minus", 5), 5u);
  EXPECT_EQ(config.Size("minus", std::nullopt, 3), 3u);
  config.Require(false, "heads", "too many");
  EXPECT_EQ(config.Bool("flag"), true);
  EXPECT_THAT(std::string(config.status().message()), testing::StartsWith("minus is -1: "));
}

TEST(ConfigReaderTest, NeverThrows) {
  for (const char* key : {"minus", "flag", "name", "limit", "nan", "huge", "enormous"}) {
    Error([&](ConfigReader& c) { c.Size(key, 1); });
  }
  for (const char* key : {"minus", "flag", "name", "limit", "enormous"}) {
    Error([&](ConfigReader& c) { c.Layers(key, 3); });
  }
  for (const json& object : {json(), json(3), json::array({1}), json("text")}) {
    EXPECT_FALSE(ConfigReader(object).Has("key"));
    EXPECT_FALSE(ConfigReader(object).IsNull("key"));
    EXPECT_EQ(ConfigReader(object).Size("key", 2), 2u);
    Error([](ConfigReader& c) { c.String("key"); }, object);
  }
  const json bytes = {{"name", "\xff\xfe"}};
  EXPECT_THAT(Error([](ConfigReader& c) { c.Size("name", 1); }, bytes), HasSubstr("name is"));
}

}  // namespace
}  // namespace rivulet
