// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/response_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/openai/errors.h"

namespace rivulet::openai {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<ResponseRequest> Read(const std::string& fields) {
  HttpRequest http;
  http.body = "{" + fields + "}";
  http.headers = {{"x-session-id", "s"}, {"x-request-id", "r"}};
  return ReadResponseRequest(http, "toy");
}

TEST(ResponseRequestTest, NamesAreNotEmpty) {
  for (const std::string name : {"previous_response_id", "cache_salt"}) {
    const auto read = Read(R"("input":"hi",")" + name + R"(":"")");
    EXPECT_TRUE(absl::IsInvalidArgument(read.status()));
    EXPECT_THAT(read.status().message(), HasSubstr(name + ": it is empty"));
  }
}

TEST(ResponseRequestTest, EveryServedFieldArrives) {
  const auto request = Read(
      R"("model":"toy","input":"hi","instructions":"be brief","previous_response_id":"resp_1",
         "store":false,"stream":true,"stream_options":{"include_obfuscation":false},
         "max_output_tokens":9,"temperature":0.5,"top_p":0.25,"top_k":7,"seed":3,"cache_salt":"salt",
         "include":["message.output_text.logprobs"],"top_logprobs":4,"user":"u","metadata":{"k":"v"},
         "tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},
                   "strict":true}],
         "tool_choice":"auto","parallel_tool_calls":true,"truncation":"disabled",
         "reasoning":{"effort":"none","summary":null},"background":false,"service_tier":"auto",
         "text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":{"z":1,"a":2}},
                 "verbosity":"medium"},"chat_template_kwargs":{"x":1},"conversation":null)");
  ASSERT_TRUE(request.ok()) << request.status();
  const v1::GenerateRequest& proto = request->proto;
  EXPECT_EQ(proto.session_id(), "");
  EXPECT_EQ(proto.request_id(), "r");
  EXPECT_EQ(request->previous_id, "resp_1");
  EXPECT_FALSE(request->store);
  EXPECT_TRUE(request->stream && request->logprobs && request->parse_tool_calls);
  EXPECT_EQ(request->top_logprobs, 4u);
  EXPECT_EQ(proto.logprobs(), 4u);
  EXPECT_EQ(proto.max_tokens(), 9u);
  EXPECT_EQ(proto.sampling().temperature(), 0.5f);
  EXPECT_EQ(proto.sampling().top_k(), 7u);
  EXPECT_EQ(proto.cache_salt(), "salt");
  EXPECT_EQ(proto.structured_output().json_schema(), R"({"z":1,"a":2})");
  const v1::Messages& messages = proto.messages();
  EXPECT_EQ(messages.instructions(), "be brief");
  EXPECT_TRUE(messages.only_these_settings());
  EXPECT_TRUE(messages.has_enable_thinking() && !messages.enable_thinking());
  EXPECT_EQ(messages.variables(), R"({"x":1})");
  EXPECT_THAT(
      messages.tools(),
      ElementsAre(
          R"({"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}})"));
  EXPECT_EQ(request->echo["tools"][0]["strict"], true);
  EXPECT_EQ(request->echo["text"]["format"]["name"], "n");
  EXPECT_EQ(request->echo["instructions"], "be brief");
  EXPECT_EQ(request->echo["metadata"]["k"], "v");
}

TEST(ResponseRequestTest, AFunctionCanBeDemanded) {
  const auto request = Read(
      R"("input":"x","tools":[{"type":"function","name":"f","strict":true},{"type":"function","name":"g"}],
         "tool_choice":{"type":"function","name":"f"},"parallel_tool_calls":false)");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->proto.messages().tools_size(), 2);
  const v1::ToolCalls& calls = request->proto.structured_output().tool_calls();
  EXPECT_EQ(calls.tools_size(), 1);
  EXPECT_TRUE(calls.one() && !calls.optional());
  EXPECT_EQ(request->echo["tool_choice"]["name"], "f");
  EXPECT_EQ(request->echo["parallel_tool_calls"], false);
}

TEST(ResponseRequestTest, ItemsOfAnAssistantsTurnAreOneMessage) {
  const auto request = Read(R"("input":[
      {"role":"developer","content":"be brief"},
      {"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
      {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
      {"type":"message","id":"msg_1","status":"completed","role":"assistant",
       "content":[{"type":"output_text","text":"c","annotations":[],"logprobs":[]},{"type":"output_text","text":"d"}]},
      {"type":"function_call","id":"fc_1","call_id":"1","name":"f","arguments":"{\"z\":1,\"a\":2}"},
      {"type":"function_call","call_id":"2","name":"g","arguments":"{}","caller":null},
      {"type":"function_call_output","call_id":"1","output":"3"},
      {"type":"function_call_output","call_id":"2","output":[{"type":"input_text","text":"4"}]},
      {"role":"assistant","content":"e"},
      {"role":"assistant","content":"f"}])");
  ASSERT_TRUE(request.ok()) << request.status();
  const v1::Messages& messages = request->proto.messages();
  ASSERT_EQ(messages.messages_size(), 7);
  EXPECT_EQ(messages.messages(0).role(), "system");
  EXPECT_EQ(messages.messages(1).parts(1).text(), "b");
  const v1::Message& turn = messages.messages(2);
  EXPECT_EQ(turn.role(), "assistant");
  EXPECT_EQ(turn.reasoning_content(), "hm");
  EXPECT_EQ(turn.content(), "cd");
  EXPECT_THAT(turn.tool_calls(), HasSubstr(R"("arguments":{"z":1,"a":2})"));
  EXPECT_THAT(turn.tool_calls(), HasSubstr(R"("id":"2")"));
  EXPECT_EQ(messages.messages(3).role(), "tool");
  EXPECT_EQ(messages.messages(3).tool_call_id(), "1");
  EXPECT_EQ(messages.messages(4).content(), "4");
  EXPECT_EQ(messages.messages(5).content(), "e");
  EXPECT_EQ(messages.messages(6).content(), "f");
}

TEST(ResponseRequestTest, WhatIsNotServedIsRefusedByName) {
  const struct {
    const char* fields;
    const char* param;
  } kCases[] = {
      {R"("input":"x","background":true)", "background"},
      {R"("input":"x","conversation":"c")", "conversation"},
      {R"("input":"x","prompt":{"id":"p"})", "prompt"},
      {R"("input":"x","truncation":"auto")", "truncation"},
      {R"("input":"x","max_tool_calls":1)", "max_tool_calls"},
      {R"("input":"x","reasoning":{"effort":"high"})", "reasoning.effort"},
      {R"("input":"x","reasoning":{"summary":"auto"})", "reasoning.summary"},
      {R"("input":"x","include":["reasoning.encrypted_content"])", "include"},
      {R"("input":"x","text":{"verbosity":"low"})", "text.verbosity"},
      {R"("input":"x","text":{"format":{"type":"xml"}})", "text.format.type"},
      {R"("input":"x","tools":[{"type":"web_search"}])", "tools[0].type"},
      {R"("input":"x","nonsense":1)", "nonsense"},
      {R"("input":"x","metadata":{"k":1})", "metadata"},
      {R"("input":[{"type":"item_reference","id":"msg_1"}])", "input[0].type"},
      {R"("input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}])",
       "input[0].content[0].type"},
      {R"("input":[{"role":"critic","content":"x"}])", "input[0].role"},
      {R"("input":[{"role":"user"}])", "input[0].content"},
      {R"("input":3)", "input"},
      {R"("store":true)", "input"},
  };
  for (const auto& [fields, param] : kCases) {
    const auto request = Read(fields);
    ASSERT_FALSE(request.ok()) << fields;
    const auto named = request.status().GetPayload(kParamPayload);
    ASSERT_TRUE(named.has_value()) << fields;
    EXPECT_EQ(std::string(*named), param) << request.status();
  }
}

}  // namespace
}  // namespace rivulet::openai
