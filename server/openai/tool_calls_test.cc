// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/tool_calls.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace rivulet::openai {
namespace {

std::shared_ptr<const ToolSchemas> Tools() {
  auto tools = std::make_shared<ToolSchemas>();
  tools->Add(*ParseJson(R"({"type":"function","function":{"name":"weather","parameters":
      {"properties":{"city":{"type":"string"},"days":{"type":"integer"}}}}})"));
  tools->Add(*ParseJson(R"({"type":"function","function":{"name":"time"}})"));
  tools->Add(*ParseJson(R"({"type":"function","function":{}})"));
  return tools;
}

struct Case {
  const char* said;
  const char* text;
  std::vector<ToolCall> calls;
};

const ToolCall kWeather = {"weather", R"({"city":"Rome","days":2})"};
const ToolCall kTime = {"time", "{}"};

// In any pieces.
void Expect(const Case& test) {
  const std::string said = test.said;
  for (size_t piece = 1; piece <= said.size(); ++piece) {
    ToolCallParser parser(Tools());
    std::string text;
    for (size_t at = 0; at < said.size(); at += piece) text += parser.Add(said.substr(at, piece));
    ToolCallParser::Rest rest = parser.Finish();
    ASSERT_EQ(text + rest.text, test.text) << said << " by " << piece;
    ASSERT_EQ(rest.calls, test.calls) << said << " by " << piece;
  }
}

TEST(ToolCallParserTest, ReadsTheSyntaxesOfTheFamilies) {
  const Case cases[] = {
      // Hermes, Qwen.
      {"<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 2}}\n"
       "</tool_call>",
       "",
       {kWeather}},
      {"I look.\n<tool_call>{\"name\":\"time\",\"arguments\":{}}</tool_call>\n"
       "<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"Rome\",\"days\":2}}</tool_call>",
       "I look.\n",
       {kTime, kWeather}},
      {"<tool_call>{\"name\":\"time\",\"arguments\":{}}", "", {kTime}},  // its stop token closes it
      // Qwen3-Coder: the schema says what is text.
      {"<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</"
       "parameter>\n<parameter=days>\n2\n"
       "</parameter>\n</function>\n</tool_call>",
       "",
       {kWeather}},
      {"<function=weather><parameter=city>12</parameter></function>",
       "",
       {{"weather", R"({"city":"12"})"}}},
      {"<function=other><parameter=x>[1, 2]</parameter><parameter=y>a b</parameter></function>",
       "",
       {{"other", R"({"x":[1,2],"y":"a b"})"}}},
      // Mistral, with and without its special tokens.
      {"[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 2}}]",
       "",
       {kWeather}},
      {"[TOOL_CALLS]weather[ARGS]{\"city\": \"Rome\", \"days\": 2}[TOOL_CALLS]time[ARGS]{}",
       "",
       {kWeather, kTime}},
      {"[{\"name\": \"time\", \"arguments\": {}}]", "", {kTime}},
      {"weather{\"city\": \"Rome\", \"days\": 2}", "", {kWeather}},
      // Llama 3.
      {"<|python_tag|>{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\", \"days\": 2}}",
       "",
       {kWeather}},
      {"{\"name\": \"time\", \"parameters\": {}}; {\"name\": \"weather\", \"parameters\": "
       "{\"city\": \"Rome\", \"days\": 2}}",
       "",
       {kTime, kWeather}},
      {"{\"name\": \"time\", \"arguments\": \"{}\"}", "", {kTime}},
  };
  for (const Case& test : cases) Expect(test);
}

TEST(ToolCallParserTest, WhatIsNoCallStaysText) {
  for (const char* const said : {"plain",
                                 "",
                                 " a < b",
                                 "<tool",
                                 "<tool_call>",
                                 "<tool_call>no JSON</tool_call>",
                                 "<tool_call>{\"name\": 5}</tool_call>",
                                 "{\"a\": 1}",
                                 "{\"name\": \"unknown\", \"parameters\": {}}",
                                 "{\"name\": \"time\"}",
                                 "[1, 2]",
                                 "weather is fine",
                                 "weather",
                                 "time{",
                                 "[TOOL_CALLS]",
                                 "[TOOL_CALLS]nothing[ARGS]{}",
                                 "<function=weather><parameter=city>Rome",
                                 "the <|python_tag|> of",
                                 "{",
                                 "}{",
                                 "text {\"name\": \"time\", \"parameters\": {}}"}) {
    Expect({said, said, {}});
  }
}

TEST(ToolCallParserTest, TextBeforeACallIsNotHeldBack) {
  ToolCallParser parser(Tools());
  EXPECT_EQ(parser.Add("I see"), "I see");
  EXPECT_EQ(parser.Add(" <to"), " ");
  EXPECT_EQ(parser.Add("ys>"), "<toys>");
}

}  // namespace
}  // namespace rivulet::openai
