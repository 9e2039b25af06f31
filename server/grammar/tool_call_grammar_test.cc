// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/grammar/tool_call_grammar.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/grammar/grammar_reference.h"
#include "server/grammar/list_tokenizer_fixture.h"
#include "server/grammar/token_grammar.h"

namespace rivulet {
namespace {

using testing::HasSubstr;

constexpr char kF[] =
    R"({"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object",
        "properties":{"x":{"$ref":"#/$defs/b"}},"required":["x"],"additionalProperties":false,
        "$defs":{"b":{"type":"boolean"}}}}})";
constexpr char kG[] = R"({"type":"function","function":{"name":"g \"1\"","parameters":
        {"type":"object","properties":{"y":{"const":1}},"required":["y"],
         "additionalProperties":false}}})";
constexpr char kH[] = R"({"type":"function","function":{"name":"h"}})";

const std::string kCallF = R"({"name": "f", "arguments": {"x": true}})";
const std::string kCallG = R"({"name": "g \"1\"", "arguments": {"y": 1}})";

std::string Tagged(const std::string& call) { return "<tool_call>\n" + call + "\n</tool_call>"; }

bool Matches(const ToolCallRules& rules, const std::string& text) {
  const auto grammar = ParseToolCalls(ToolCallText(rules));
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return grammar.ok() && GrammarReference(*grammar, text).Matches();
}

TEST(ToolCallGrammarTest, CallsFitTheSchemaOfTheirTool) {
  const ToolCallRules rules = {.tools = {kF, kG, kH}};
  EXPECT_TRUE(Matches(rules, Tagged(kCallF)));
  EXPECT_TRUE(Matches(rules, Tagged(kCallG)));
  EXPECT_TRUE(Matches(rules, Tagged(R"({"name": "h", "arguments": {}})")));
  EXPECT_TRUE(Matches(rules, Tagged(kCallF) + "\n" + Tagged(kCallG)));
  EXPECT_FALSE(Matches(rules, Tagged(R"({"name": "f", "arguments": {"y": 1}})")));
  EXPECT_FALSE(Matches(rules, Tagged(R"({"name": "i", "arguments": {}})")));
  EXPECT_FALSE(Matches(rules, "well " + Tagged(kCallF)));
  EXPECT_FALSE(Matches(rules, ""));
  EXPECT_FALSE(Matches({.one = true, .tools = {kF}}, Tagged(kCallF) + "\n" + Tagged(kCallF)));
}

TEST(ToolCallGrammarTest, OtherSyntaxesHaveNoMarks) {
  const ToolCallRules array = {.syntax = ToolCallSyntax::kArray, .tools = {kF, kG}};
  EXPECT_TRUE(Matches(array, "[" + kCallF + "]"));
  EXPECT_TRUE(Matches(array, "[" + kCallF + ", " + kCallG + "]"));
  EXPECT_FALSE(Matches(array, kCallF));
  const ToolCallRules parameters = {.syntax = ToolCallSyntax::kParameters, .tools = {kF}};
  const std::string call = R"({"name": "f", "parameters": {"x": true}})";
  EXPECT_TRUE(Matches(parameters, call));
  EXPECT_TRUE(Matches(parameters, call + "; " + call));
  EXPECT_FALSE(Matches({.syntax = ToolCallSyntax::kParameters, .one = true, .tools = {kF}},
                       call + "; " + call));
}

TEST(ToolCallGrammarTest, OptionalCallsLeaveTextAlone) {
  const ToolCallRules rules = {.optional = true, .one = true, .tools = {kF, kG}};
  for (const char* const text : {"", "1 < 2", "<", "<<tool_cal", "<tool_cal>", "a</tool_call>"}) {
    EXPECT_TRUE(Matches(rules, text)) << text;
    EXPECT_TRUE(Matches(rules, text + Tagged(kCallF))) << text;
  }
  EXPECT_FALSE(Matches(rules, "<tool_call>"));
  EXPECT_FALSE(Matches(rules, Tagged(R"({"name": "f", "arguments": {"x": 3}})")));
  // Not strict.
  EXPECT_TRUE(Matches(rules, Tagged(R"({"name": "g \"1\"", "arguments": {"z": [2]}})")));
  EXPECT_FALSE(Matches(rules, Tagged(kCallF) + "\n" + Tagged(kCallF)));
  EXPECT_FALSE(Matches(rules, Tagged(kCallF) + " well"));
  EXPECT_TRUE(
      Matches({.optional = true, .tools = {kF}}, "a" + Tagged(kCallF) + "\n" + Tagged(kCallF)));
}

TEST(ToolCallGrammarTest, WrongToolsAreNamed) {
  const auto problem = [](std::vector<std::string> tools) {
    const auto grammar = ParseToolCalls(ToolCallText({.tools = std::move(tools)}));
    return std::string(grammar.status().message());
  };
  EXPECT_THAT(problem({}), HasSubstr("there are 0 tools"));
  EXPECT_THAT(problem(std::vector<std::string>(kMaxTools + 1, kH)), HasSubstr("129 tools"));
  EXPECT_THAT(problem({"[]"}), HasSubstr("JSON object"));
  EXPECT_THAT(problem({"{}"}), HasSubstr("a name"));
  EXPECT_THAT(problem({R"({"function":{"name":"f","parameters":{"type":"array"}}})"}),
              HasSubstr("\"f\": parameters describes an object"));
  EXPECT_THAT(problem({R"({"function":{"name":"f","parameters":{"not":{}}}})"}), HasSubstr("not"));
  EXPECT_THAT(problem({R"({"function":{"name":"f","parameters":1}})"}), HasSubstr("a JSON schema"));
}

// As the scheduler walks it.
TEST(ToolCallGrammarTest, TheAutomatonEndsBehindTheCall) {
  const auto grammar = ParseToolCalls(ToolCallText({.one = true, .tools = {kH}}));
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  const std::string text = Tagged(R"({"name": "h", "arguments": {}})");
  const ListTokenizer tokenizer({text, "x", "\n<tool_call>"});
  auto made = TokenGrammar::Make(*grammar, std::make_shared<TokenBytesTable>(tokenizer));
  ASSERT_TRUE(made.ok()) << made.status();
  GrammarMatcher matcher(*made, false);
  const auto allowed = matcher.Allowed({});
  ASSERT_TRUE(allowed.ok());
  EXPECT_TRUE(allowed->Contains(0) && !allowed->Contains(1) && !allowed->may_end());
  ASSERT_TRUE(matcher.Accept(0).ok());
  EXPECT_TRUE(matcher.is_complete());
}

}  // namespace
}  // namespace rivulet
