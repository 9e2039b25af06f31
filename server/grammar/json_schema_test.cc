// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/grammar/json_schema.h"

#include <algorithm>
#include <functional>
#include <random>
#include <regex>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/base/thread_seconds.h"
#include "nlohmann/json.hpp"
#include "server/grammar/grammar_reference.h"
#include "server/grammar/list_tokenizer_fixture.h"
#include "server/grammar/token_grammar.h"

namespace rivulet {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

Grammar Parse(const std::string& schema) {
  auto grammar = ParseJsonSchema(schema);
  EXPECT_TRUE(grammar.ok()) << schema << ": " << grammar.status();
  return grammar.ok() ? *std::move(grammar) : AnyJsonObject();
}

bool Matches(const std::string& schema, const std::string& text) {
  const Grammar grammar = Parse(schema);
  return GrammarReference(grammar, text).Matches();
}

// Bytes, and tokens that cross the borders of JSON's parts. Those that end something come often, so
// that a random text ends.
std::vector<std::string> Vocabulary() {
  std::vector<std::string> tokens = {"\"}",  "\"]",  "\", \"", "\":", "{\"", "\": \"",
                                     "],",   "é",    "ab",     "}}",  "\\n", "\\u00",
                                     "true", "null", "-1",     "0.",  ", ",  "\n "};
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  return tokens;
}

TEST(JsonSchemaTest, WritesTypes) {
  EXPECT_TRUE(Matches(R"({"type": "integer"})", "-120"));
  EXPECT_FALSE(Matches(R"({"type": "integer"})", "012"));
  EXPECT_FALSE(Matches(R"({"type": "integer"})", "1.5"));
  EXPECT_TRUE(Matches(R"({"type": "number"})", "-1.5e-3"));
  EXPECT_TRUE(Matches(R"({"type": ["boolean", "null"]})", "null"));
  EXPECT_TRUE(Matches(R"({"type": "string"})", R"("a\n\u00e9é\"")"));
  EXPECT_FALSE(Matches(R"({"type": "string"})", R"("\ud800")"));
  EXPECT_FALSE(Matches(R"({"type": "string"})", "\"\n\""));
  EXPECT_TRUE(Matches("true", R"({"a": [1, {}, [] , "x"],"b":null})"));
  EXPECT_TRUE(Matches("{}", "[\n  1,\n  2\n]"));
  EXPECT_FALSE(Matches("{}", "[1,]"));
}

TEST(JsonSchemaTest, WritesObjects) {
  const std::string schema = R"({"type": "object", "properties": {"a": {"type": "integer"},
      "b": {"type": "string"}, "c": {"const": 1}}, "required": ["b"]})";
  EXPECT_TRUE(Matches(schema, R"({"b": ""})"));
  EXPECT_TRUE(Matches(schema, R"({"a":1,"b":"","c":1})"));
  EXPECT_FALSE(Matches(schema, R"({"a": 1})"));
  EXPECT_FALSE(Matches(schema, R"({"b": "", "d": 1})"));
  EXPECT_FALSE(Matches(schema, R"({, "b": ""})"));
  const std::string optional = R"({"properties": {"a": true, "b": true}})";
  for (const char* text : {"{}", R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"}) {
    EXPECT_TRUE(Matches(optional, text)) << text;
  }
  const std::string open =
      R"({"properties": {"ab": {"type": "null"}}, "additionalProperties": {"type": "integer"}})";
  EXPECT_TRUE(Matches(open, R"({"ab": null, "a": 1, "abc": 2, "": 3})"));
  EXPECT_TRUE(Matches(open, R"({"x": 1})"));
  EXPECT_FALSE(Matches(open, R"({"ab": 1})"));
  EXPECT_FALSE(Matches(open, R"({"\u0061b": 1})"));
  EXPECT_TRUE(Matches(R"({"required": ["x"]})", R"({"x": [1]})"));
}

TEST(JsonSchemaTest, WritesArrays) {
  const std::string bounded =
      R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})";
  EXPECT_FALSE(Matches(bounded, "[1]"));
  EXPECT_TRUE(Matches(bounded, "[1, 2]"));
  EXPECT_TRUE(Matches(bounded, "[1, 2, 3]"));
  EXPECT_FALSE(Matches(bounded, "[1, 2, 3, 4]"));
  const std::string pair =
      R"({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": false})";
  EXPECT_TRUE(Matches(pair, R"([1, "a"])"));
  EXPECT_FALSE(Matches(pair, R"([1, "a", 2])"));
  EXPECT_TRUE(Matches(R"({"type": "array", "maxItems": 0})", "[]"));
}

TEST(JsonSchemaTest, BoundsNumbers) {
  for (const auto& [least, most] : {std::pair(-12, 5), std::pair(0, 0), std::pair(7, 1234),
                                    std::pair(-999, -98), std::pair(95, 105)}) {
    const Grammar grammar = Parse(R"({"type": "integer", "minimum": )" + std::to_string(least) +
                                  R"(, "maximum": )" + std::to_string(most) + "}");
    for (int i = -1300; i <= 1300; ++i) {
      EXPECT_EQ(GrammarReference(grammar, std::to_string(i)).Matches(), i >= least && i <= most)
          << i << " of " << least << " to " << most;
    }
  }
  const std::string unit = R"({"type": "number", "minimum": 0, "exclusiveMaximum": 1})";
  EXPECT_TRUE(Matches(unit, "0.25") && Matches(unit, "0") && Matches(unit, "0.999"));
  EXPECT_FALSE(Matches(unit, "1") || Matches(unit, "-0.5") || Matches(unit, "1.0"));
  const std::string signs = R"({"type": "number", "exclusiveMinimum": -2, "exclusiveMaximum": 0})";
  EXPECT_TRUE(Matches(signs, "-1.5") && Matches(signs, "-0.1") && Matches(signs, "-1"));
  EXPECT_FALSE(Matches(signs, "0") || Matches(signs, "-0.0") || Matches(signs, "-2.0"));
}

TEST(JsonSchemaTest, WritesTexts) {
  const std::string bounded = R"({"type": "string", "minLength": 2, "maxLength": 3})";
  EXPECT_FALSE(Matches(bounded, R"("a")"));
  EXPECT_TRUE(Matches(bounded, R"("é\n")"));
  EXPECT_FALSE(Matches(bounded, R"("abcd")"));
  EXPECT_TRUE(Matches(R"({"type": "string", "pattern": "^a\"b$"})", R"("a\"b")"));
  EXPECT_TRUE(Matches(R"({"type": "string", "pattern": "b+"})", R"("abbc")"));
  EXPECT_FALSE(Matches(R"({"type": "string", "pattern": "^b+$"})", R"("abbc")"));
  EXPECT_TRUE(Matches(R"({"type": "string", "format": "date"})", R"("2026-11-23")"));
  EXPECT_TRUE(Matches(R"({"type": "string", "format": "ipv4"})", R"("10.0.255.1")"));
  EXPECT_TRUE(Matches(R"({"type": "string", "format": "unheard of"})", R"("x")"));
}

TEST(JsonSchemaTest, FollowsReferences) {
  const std::string tree = R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object",
      "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
      "required": ["next"]}}})";
  EXPECT_TRUE(Matches(tree, R"({"next": {"next": null}})"));
  EXPECT_FALSE(Matches(tree, R"({"next": {}})"));
  EXPECT_EQ(Automaton::Make(Parse(R"({"$ref": "#"})")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(JsonSchemaTest, BoundsTheWorkOfHostileSchemas) {
  std::string nested = R"({"type": "null"})", ones, keys, integers;
  for (int i = 0; i < 30; ++i) {
    nested = R"({"type": ["array", "array", "object"], "items": )" + nested + "}";
  }
  for (int i = 0; i < 5000; ++i) {
    const std::string number = std::to_string(i);
    ones += (i == 0 ? "" : ",") + ("{\"const\":" + number) + "}";
    keys += (i == 0 ? "\"k" : ",\"k") + number + "\"";
    if (i < 1000) integers += (i == 0 ? "\"k" : ",\"k") + number + "\":{\"type\":\"integer\"}";
  }
  const double started = ThreadSeconds();
  for (const std::string& schema :
       {nested, "{\"oneOf\":[" + ones + "]}", "{\"required\":[" + keys + "]}",
        "{\"enum\":[" + keys + "]}", "{\"properties\":{" + integers + "}}",
        R"({"properties":{")" + std::string(60000, 'a') +
            R"(":{}},"additionalProperties":true})"}) {
    const auto grammar = ParseJsonSchema(schema);
    if (grammar.ok()) (void)Automaton::Make(*grammar);
  }
  EXPECT_LT(ThreadSeconds() - started, 20);
}

// What everyday schemas hold many times is there once.
TEST(JsonSchemaTest, LargeSchemasAreServed) {
  std::string properties, keys;
  for (int i = 0; i < 500; ++i) {
    const std::string number = std::to_string(i);
    properties += (i == 0 ? "\"i" : ",\"i") + number + "\":{\"type\":\"integer\"},\"s" + number +
                  "\":{\"type\":\"string\",\"maxLength\":100}";
  }
  for (int i = 0; i < 5000; ++i) keys += (i == 0 ? "\"k" : ",\"k") + std::to_string(i) + "\"";
  const ListTokenizer tokenizer(Vocabulary());
  const auto table = std::make_shared<TokenBytesTable>(tokenizer);
  for (const std::string& schema :
       {"{\"properties\":{" + properties + "}}", "{\"enum\":[" + keys + "]}",
        std::string(R"({"type":"string","maxLength":20000})")}) {
    EXPECT_TRUE(TokenGrammar::Make(Parse(schema), table).ok()) << schema.substr(0, 60);
  }
}

// Those that are required among them; others behind them, where they may come.
TEST(JsonSchemaTest, EverySubsetOfPropertiesComesInOrder) {
  const std::string keys = "abc";
  for (unsigned required = 0; required < 8; ++required) {
    for (const bool additional : {false, true}) {
      Json schema = {{"properties", Json::object()}, {"required", Json::array()}};
      for (unsigned i = 0; i < 3; ++i) {
        schema["properties"][keys.substr(i, 1)] = {{"const", i}};
        if (required >> i & 1) schema["required"].push_back(keys.substr(i, 1));
      }
      if (additional) schema["additionalProperties"] = {{"const", 7}};
      const Grammar grammar = Parse(schema.dump());
      // All sequences of up to 4 of the three keys and another one.
      for (unsigned sequence = 0; sequence < 625; ++sequence) {
        std::string text, order;
        for (unsigned rest = sequence; rest > 0; rest /= 5) {
          if (rest % 5 != 0) order += "abcx"[rest % 5 - 1];
        }
        for (const char key : order) {
          text += text.empty() ? "" : ", ";
          text += std::string("\"") + key + "\": " + (key == 'x' ? "7" : std::string(1, key - 49));
        }
        const std::string named = order.substr(0, order.find('x'));
        bool fits =
            std::adjacent_find(named.begin(), named.end(), std::greater_equal()) == named.end() &&
            order.find_first_not_of('x', named.size()) == order.npos &&
            (additional || named == order);
        for (unsigned i = 0; i < 3; ++i) {
          fits = fits && ((required >> i & 1) == 0 || named.find(keys[i]) != named.npos);
        }
        EXPECT_EQ(GrammarReference(grammar, "{" + text + "}").Matches(), fits)
            << schema << " " << text;
      }
    }
  }
}

std::string ManyNames(int count) {
  std::string names;
  for (int i = 0; i < count; ++i) {
    const std::string key(1, static_cast<char>('a' + i % 26));
    names += (i == 0 ? "\"" : ",\"") + key + std::to_string(i) + "\":{\"type\":\"integer\"}";
  }
  return names;
}

// Each subset of them may come, in order: the key that begins may be that of any of them.
TEST(JsonSchemaTest, ThousandsOfOptionalPropertiesAreServed) {
  const ListTokenizer tokenizer(Vocabulary());
  const auto table = std::make_shared<TokenBytesTable>(tokenizer);
  const auto take = [](GrammarMatcher& matcher, std::string_view text) {
    for (const char byte : text) {
      const auto token = static_cast<uint32_t>(18 + static_cast<uint8_t>(byte));
      const auto allowed = matcher.Allowed({});
      if (!allowed.ok() || !allowed->Contains(token) || !matcher.Accept(token).ok()) return false;
    }
    return true;
  };
  for (const int count : {1000, 4000}) {
    const double started = ThreadSeconds();
    const auto grammar =
        TokenGrammar::Make(Parse("{\"properties\":{" + ManyNames(count) + "}}"), table);
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    GrammarMatcher matcher(*grammar, true);
    EXPECT_TRUE(take(matcher, R"({"b1":1,"m64": 64,"l999":9)"));
    GrammarMatcher back = matcher;
    EXPECT_FALSE(take(back, R"(,"m64)")) << "it comes before l999";
    EXPECT_TRUE(take(matcher, "}"));
    EXPECT_TRUE(matcher.is_complete());
    EXPECT_LT(ThreadSeconds() - started, 5);
  }
}

// Arrays of arrays, which are in as many places at once as alternatives to the power of their
// depth.
std::string ManyPlaces() {
  std::string alternatives = R"({"type": "integer"})";
  for (int i = 1; i <= 12; ++i) {
    alternatives +=
        R"(, {"type": "array", "items": {"$ref": "#"}, "maxItems": )" + std::to_string(i) + "}";
  }
  return "{\"anyOf\": [" + alternatives + "]}";
}

// Once these could end in the middle: with more places than are followed, or so deep that what was
// still required would have been too deep.
TEST(JsonSchemaTest, EveryTextCanBeCompleted) {
  const std::string many_names =
      "{\"properties\":{" + ManyNames(3500) + "},\"additionalProperties\":{\"type\":\"integer\"}}";
  const std::pair<std::string, int> schemas[] = {
      // with how many tokens that open something
      {many_names, 100},
      {ManyPlaces(), 40},
      {R"({"type": "object", "properties": {"b": {"$ref": "#"}, "a": {"type": "string"}},
           "required": ["a"]})",
       6000},
      {R"({"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"type": "object", "properties":
           {"x": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}},
           "required": ["x"]}]}, "minItems": 1})",
       3000}};
  std::mt19937 random(TestSeed());
  const ListTokenizer tokenizer(Vocabulary());
  const auto table = std::make_shared<TokenBytesTable>(tokenizer);
  for (const auto& [schema, opening] : schemas) {
    const auto grammar = TokenGrammar::Make(Parse(schema), table);
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    GrammarMatcher matcher(*grammar, false);
    std::string text;
    for (int step = 0; step < 40000 && !matcher.is_complete(); ++step) {
      const auto allowed = matcher.Allowed({});
      ASSERT_TRUE(allowed.ok()) << schema.substr(0, 100) << " after " << text.size() << " bytes, "
                                << text.substr(std::max<size_t>(text.size(), 50) - 50) << ": "
                                << allowed.status();
      // First brackets that open and then those that close, where they may come.
      const std::string_view wanted = step < opening ? "\"[{ba" : "\"]}0";
      const auto id = [](char byte) { return 18 + static_cast<uint8_t>(byte); };
      const auto* const want = std::find_if(wanted.begin(), wanted.end(), [&](char byte) {
        return allowed->Contains(static_cast<uint32_t>(id(byte)));
      });
      auto token = static_cast<uint32_t>(random() % tokenizer.vocab_size());
      if (want != wanted.end() && random() % 50 != 0) token = static_cast<uint32_t>(id(*want));
      while (!allowed->Contains(token)) token = (token + 1) % tokenizer.vocab_size();
      ASSERT_TRUE(matcher.Accept(token).ok());
      text += tokenizer.TokenBytes(token);
    }
    EXPECT_TRUE(matcher.is_complete())
        << text.substr(text.size() - std::min<size_t>(text.size(), 300));
    EXPECT_TRUE(Json::accept(text));
  }
}

// What is left out of too many places does not depend on which texts came before.
TEST(JsonSchemaTest, WhatIsLeftOutDependsOnTheTextAlone) {
  std::mt19937 random(TestSeed());
  const ListTokenizer tokenizer(Vocabulary());
  const auto table = std::make_shared<TokenBytesTable>(tokenizer);
  const auto used = TokenGrammar::Make(Parse(ManyPlaces()), table);
  ASSERT_TRUE(used.ok());
  bool narrowed = false;
  for (int text = 0; text < 8; ++text) {
    const auto fresh = TokenGrammar::Make(Parse(ManyPlaces()), table);
    GrammarMatcher one(*used, false), other(*fresh, false);
    for (int step = 0; step < 12 && !one.is_complete(); ++step) {
      const auto allowed = one.Allowed({});
      ASSERT_TRUE(allowed.ok());
      if (random() % 3 != 0) {
        const auto as_fresh = other.Allowed({});
        ASSERT_TRUE(as_fresh.ok());
        ASSERT_TRUE(
            std::equal(allowed->bits().begin(), allowed->bits().end(), as_fresh->bits().begin()));
      }
      narrowed = narrowed || allowed->state->narrowed;
      auto token = static_cast<uint32_t>(random() % tokenizer.vocab_size());
      if (random() % 4 != 0) token = 18 + '[';
      while (!allowed->Contains(token)) token = (token + 1) % tokenizer.vocab_size();
      ASSERT_TRUE(one.Accept(token).ok() && other.Accept(token).ok());
    }
  }
  EXPECT_TRUE(narrowed);
}

// Keys share the rest of other keys, but not what begins like one of them.
TEST(JsonSchemaTest, OtherKeysAreNotThoseOfProperties) {
  const std::string schema = R"({"properties": {"é": {"type": "integer"}, "éa": {"type": "integer"},
      "ab": {"type": "integer"}}, "additionalProperties": {"type": "string"}})";
  for (const char* const key : {"é", "éa", "ab"}) {
    EXPECT_TRUE(Matches(schema, absl::StrCat("{\"", key, "\":1}"))) << key;
    EXPECT_FALSE(Matches(schema, absl::StrCat("{\"", key, "\":\"x\"}"))) << key;
  }
  for (const char* const key : {"", "è", "éb", "ééa", "éaa", "a", "abc", "b", "語", "a語"}) {
    EXPECT_TRUE(Matches(schema, absl::StrCat("{\"", key, "\":\"x\"}"))) << key;
    EXPECT_FALSE(Matches(schema, absl::StrCat("{\"", key, "\":1}"))) << key;
  }
}

TEST(JsonSchemaTest, BoundsHoldForWhatAParserReads) {
  const std::string unit = R"({"type": "number", "minimum": 0, "exclusiveMaximum": 1})";
  EXPECT_TRUE(Matches(unit, "0.99999999999999"));
  EXPECT_FALSE(Matches(unit, "0.99999999999999999"));
  EXPECT_TRUE(Matches(R"({"type": "integer", "const": 1.0})", "1.0"));
  EXPECT_TRUE(Matches(R"({"type": "integer", "minimum": 5})", "123456789012"));
}

TEST(JsonSchemaTest, RefusesByName) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"not": {}})", "\"not\""},
      {R"({"type": "object", "patternProperties": {}})", "\"patternProperties\""},
      {R"({"type": "array", "uniqueItems": true})", "\"uniqueItems\""},
      {R"({"type": "number", "multipleOf": 2})", "\"multipleOf\""},
      {R"({"properties": {"a": {"if": {}}}})", "#/properties/a"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "oneOf"},
      {R"({"allOf": [{}, {}]})", "allOf"},
      {R"({"oneOf": [{"const": {"a": 1, "b": 2}}, {"const": {"b": 2, "a": 1}}]})", "oneOf"},
      {R"({"$ref": "https://example.com/x"})", "another document"},
      {R"-({"type": "string", "pattern": "(?=a)"})-", "this kind of group"},
      {R"({"type": "string", "pattern": "a", "minLength": 3})", "beside"},
      {R"({"type": "number", "minimum": 0.2, "maximum": 0.8})", "no integer"},
  };
  for (const auto& [schema, reason] : kCases) {
    const absl::Status status = ParseJsonSchema(schema).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << schema;
    EXPECT_THAT(status.ToString(), HasSubstr(reason)) << schema;
  }
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += R"({"items":)";
  for (const std::string& wrong :
       {std::string("{"), std::string("3"), std::string(R"({"type": "text"})"),
        std::string(R"({"enum": 1})"), std::string(R"({"properties": []})"),
        std::string(R"({"$ref": "#/nowhere"})"), std::string(R"({"$ref": "#~"})"),
        std::string(R"({"minLength": -1})"), std::string("\"\xFF\""), deep,
        std::string(300 << 10, ' ')}) {
    EXPECT_EQ(ParseJsonSchema(wrong).status().code(), absl::StatusCode::kInvalidArgument)
        << wrong.substr(0, 50);
  }
}

// Whether a schema of those that RandomSchema makes accepts the value, from the standard's words.
bool Accepts(const Json& schema, const Json& value) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.contains("enum")) {
    return std::find(schema["enum"].begin(), schema["enum"].end(), value) != schema["enum"].end();
  }
  if (schema.contains("anyOf")) {
    return std::any_of(schema["anyOf"].begin(), schema["anyOf"].end(),
                       [&](const Json& part) { return Accepts(part, value); });
  }
  const auto type = schema["type"].get<std::string>();
  if (type == "integer") {
    return value.is_number_integer() && value >= schema["minimum"] && value <= schema["maximum"];
  }
  if (type == "number") {
    return value.is_number() && value > schema["exclusiveMinimum"] && value <= schema["maximum"];
  }
  if (type == "string") {
    if (!value.is_string()) return false;
    const auto text = value.get<std::string>();
    if (schema.contains("pattern")) {
      return std::regex_search(text, std::regex(schema["pattern"].get<std::string>()));
    }
    const auto length =
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
    return length >= schema["minLength"] && length <= schema["maxLength"];
  }
  if (type == "array") {
    return value.is_array() && value.size() >= schema["minItems"] &&
           value.size() <= schema["maxItems"] &&
           std::all_of(value.begin(), value.end(),
                       [&](const Json& item) { return Accepts(schema["items"], item); });
  }
  if (!value.is_object()) return false;
  for (const Json& key : schema["required"]) {
    if (!value.contains(key.get<std::string>())) return false;
  }
  for (const auto& [key, member] : value.items()) {
    const bool named = schema["properties"].contains(key);
    if (!Accepts(named ? schema["properties"][key] : schema["additionalProperties"], member)) {
      return false;
    }
  }
  return true;
}

Json RandomSchema(std::mt19937& random, int depth) {
  switch (random() % (depth == 0 ? 5 : 8)) {
    case 0: {
      const int least = static_cast<int>(random() % 300) - 150;
      return {{"type", "integer"},
              {"minimum", least},
              {"maximum", least + static_cast<int>(random() % 200)}};
    }
    case 1: {
      const int least = static_cast<int>(random() % 30) - 15;
      return {{"type", "number"},
              {"exclusiveMinimum", least},
              {"maximum", least + 1 + static_cast<int>(random() % 9)}};
    }
    case 2: {
      const unsigned least = random() % 3;
      return {{"type", "string"}, {"minLength", least}, {"maxLength", least + random() % 4}};
    }
    case 3: {
      constexpr const char* kPatterns[] = {"^[a-c]+$", "x", "^a|b$", "^(ab?c){1,2}", "[^a-z]$"};
      return {{"type", "string"}, {"pattern", kPatterns[random() % std::size(kPatterns)]}};
    }
    case 4:
      return {{"enum", {1, "a\"b", nullptr, {{"k", {true}}}}}};
    case 5:
      return {{"anyOf", {RandomSchema(random, depth - 1), RandomSchema(random, depth - 1)}}};
    case 6: {
      const unsigned least = random() % 3;
      return {{"type", "array"},
              {"items", RandomSchema(random, depth - 1)},
              {"minItems", least},
              {"maxItems", least + random() % 3}};
    }
    default: {
      Json schema = {
          {"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
      for (const char* key : {"a", "ab", "é\"", ""}) {
        if (random() % 2 == 0) continue;
        schema["properties"][key] = RandomSchema(random, depth - 1);
        if (random() % 2 == 0) schema["required"].push_back(key);
      }
      schema["additionalProperties"] =
          random() % 2 == 0 ? Json(false) : RandomSchema(random, depth - 1);
      return schema;
    }
  }
}

TEST(JsonSchemaTest, WhatRandomTokensWriteIsAccepted) {
  std::mt19937 random(TestSeed());
  const ListTokenizer tokenizer(Vocabulary());
  const auto table = std::make_shared<TokenBytesTable>(tokenizer);
  int finished = 0;
  for (int round = 0; round < 200; ++round) {
    const Json schema = RandomSchema(random, 3);
    const auto grammar = TokenGrammar::Make(Parse(schema.dump()), table);
    ASSERT_TRUE(grammar.ok()) << schema << grammar.status();
    GrammarMatcher matcher(*grammar, false);
    std::string text;
    for (int step = 0; step < 400 && !matcher.is_complete(); ++step) {
      const auto allowed = matcher.Allowed({});
      ASSERT_TRUE(allowed.ok()) << schema << " after " << text << ": " << allowed.status();
      if (allowed->may_end()) {
        ++finished;
        const Json value = Json::parse(text, nullptr, false);
        ASSERT_FALSE(value.is_discarded()) << schema << ": " << text;
        ASSERT_TRUE(Accepts(schema, value)) << schema << ": " << text;
        if (random() % 4 == 0) break;
      }
      std::vector<uint32_t> good;
      for (uint32_t id = 0; id < tokenizer.vocab_size(); ++id) {
        if (allowed->Contains(id)) good.push_back(id);
      }
      ASSERT_FALSE(good.empty() && !allowed->may_end());
      if (good.empty()) break;
      // A quote or a bracket, where it may come, half of the time.
      const bool ends = random() % 2 == 0;
      uint32_t token = good[random() % good.size()];
      for (const uint32_t id : good) {
        const std::string_view bytes = tokenizer.TokenBytes(id);
        if (ends && (bytes == "\"" || bytes == "}" || bytes == "]")) token = id;
      }
      ASSERT_TRUE(matcher.Accept(token).ok());
      text += tokenizer.TokenBytes(token);
    }
    if (matcher.is_complete()) {
      const Json value = Json::parse(text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << schema << ": " << text;
      ASSERT_TRUE(Accepts(schema, value)) << schema << ": " << text;
      ++finished;
    }
  }
  EXPECT_GT(finished, 100);
}

}  // namespace
}  // namespace rivulet
