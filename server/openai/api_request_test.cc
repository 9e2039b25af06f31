// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/api_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/ascii.h"

namespace rivulet::openai {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<ApiRequest> Read(Endpoint endpoint, const std::string& body) {
  HttpRequest http;
  http.body = body;
  http.headers = {{"X-Session-ID", "s"}, {"x-request-id", "r"}};
  return ReadApiRequest(http, endpoint, "toy");
}

absl::StatusOr<ApiRequest> ReadChat(const std::string& fields) {
  return Read(Endpoint::kChat, R"({"messages":[{"role":"user","content":"hi"}])" +
                                   (fields.empty() ? "" : "," + fields) + "}");
}

absl::StatusOr<ApiRequest> ReadCompletion(const std::string& fields) {
  return Read(Endpoint::kCompletions, "{" + fields + "}");
}

TEST(ApiRequestTest, EveryServedFieldArrives) {
  const auto request = ReadChat(
      R"("model":"toy","temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.125,"seed":-2,
         "repetition_penalty":1.5,"frequency_penalty":-1,"presence_penalty":2,
         "logit_bias":{"5":-100,"6":1.5},"stop":["a","b"],"stop_token_ids":[3],"ignore_eos":true,
         "include_stop_str_in_output":true,"min_tokens":2,"max_completion_tokens":9,"n":3,
         "logprobs":true,"top_logprobs":4,"stream":true,"stream_options":{"include_usage":true},
         "cache_salt":"salt","return_token_ids":true,"user":"u","parallel_tool_calls":true,
         "response_format":{"type":"text"},"service_tier":"auto","store":false)");
  ASSERT_TRUE(request.ok()) << request.status();
  const v1::GenerateRequest& proto = request->proto;
  EXPECT_EQ(proto.session_id(), "s");
  EXPECT_EQ(proto.request_id(), "r");
  const v1::SamplingParams& sampling = proto.sampling();
  EXPECT_EQ(sampling.temperature(), 0.5f);
  EXPECT_EQ(sampling.top_p(), 0.25f);
  EXPECT_EQ(sampling.top_k(), 7u);
  EXPECT_EQ(sampling.min_p(), 0.125f);
  EXPECT_EQ(sampling.seed(), static_cast<uint64_t>(-2));
  EXPECT_EQ(sampling.repetition_penalty(), 1.5f);
  EXPECT_EQ(sampling.frequency_penalty(), -1.f);
  EXPECT_EQ(sampling.presence_penalty(), 2.f);
  EXPECT_EQ(sampling.logit_bias().at(5), -100.f);
  EXPECT_EQ(sampling.logit_bias().at(6), 1.5f);
  EXPECT_THAT(proto.stop().strings(), ElementsAre("a", "b"));
  EXPECT_THAT(proto.stop().token_ids(), ElementsAre(3u));
  EXPECT_TRUE(proto.stop().ignore_eos() && proto.stop().include_stop());
  EXPECT_EQ(proto.stop().min_tokens(), 2u);
  EXPECT_EQ(proto.max_tokens(), 9u);
  EXPECT_EQ(proto.n(), 3u);
  EXPECT_EQ(proto.logprobs(), 4u);
  EXPECT_EQ(proto.cache_salt(), "salt");
  EXPECT_TRUE(request->stream && request->include_usage && request->logprobs);
  EXPECT_TRUE(request->token_ids);
}

TEST(ApiRequestTest, WhatIsLeftOutOrNullStaysUnset) {
  for (const char* const fields : {"", R"("temperature":null,"n":null,"stop":null,"seed":null)"}) {
    const auto request = ReadChat(fields);
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_FALSE(request->proto.sampling().has_temperature());
    EXPECT_FALSE(request->proto.sampling().has_seed());
    EXPECT_FALSE(request->proto.has_n() || request->proto.has_max_tokens());
    EXPECT_EQ(request->proto.logprobs(), 0u);
    EXPECT_FALSE(request->stream);
  }
}

TEST(ApiRequestTest, MessagesBecomeThoseOfTheTemplate) {
  const auto request = Read(Endpoint::kChat, R"({"messages":[
      {"role":"developer","content":"Be brief."},
      {"role":"user","content":[{"type":"text","text":"Hi"}],"name":"ann","mood":"good"},
      {"role":"assistant","content":null,"reasoning_content":"hm","refusal":null,"audio":null,
       "tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"z\":1,\"a\":2}"}}]},
      {"role":"tool","content":"3","tool_call_id":"1"}],
     "tools":[{"type":"function","function":{"name":"f"}}],
     "chat_template_kwargs":{"enable_thinking":false,"x":1}})");
  ASSERT_TRUE(request.ok()) << request.status();
  const v1::Messages& messages = request->proto.messages();
  ASSERT_EQ(messages.messages_size(), 4);
  EXPECT_EQ(messages.messages(0).role(), "system");
  EXPECT_EQ(messages.messages(1).parts(0).text(), "Hi");
  EXPECT_EQ(messages.messages(1).name(), "ann");
  EXPECT_EQ(messages.messages(1).fields(), R"({"mood":"good"})");
  EXPECT_FALSE(messages.messages(2).has_content());
  EXPECT_EQ(messages.messages(2).reasoning_content(), "hm");
  EXPECT_EQ(messages.messages(2).fields(), "");
  EXPECT_THAT(messages.messages(2).tool_calls(), HasSubstr(R"("arguments":{"z":1,"a":2})"));
  EXPECT_EQ(messages.messages(3).tool_call_id(), "1");
  EXPECT_THAT(messages.tools(), ElementsAre(R"({"type":"function","function":{"name":"f"}})"));
  EXPECT_FALSE(messages.enable_thinking());
  EXPECT_TRUE(messages.has_enable_thinking());
  EXPECT_EQ(messages.variables(), R"({"x":1})");
  EXPECT_TRUE(request->parse_tool_calls);
}

TEST(ApiRequestTest, ReadsStructuredOutput) {
  const auto read = [](const char* fields) {
    const auto request = ReadChat(fields);
    EXPECT_TRUE(request.ok()) << request.status();
    return request.ok() ? request->proto.structured_output() : v1::StructuredOutput();
  };
  EXPECT_EQ(read(R"("response_format":{"type":"text"})").kind_case(),
            v1::StructuredOutput::KIND_NOT_SET);
  EXPECT_TRUE(read(R"("response_format":{"type":"json_object"})").json_object());
  EXPECT_EQ(read(R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,
                "schema":{"z":1,"a":{}}}})")
                .json_schema(),
            R"({"z":1,"a":{}})");
  EXPECT_EQ(read(R"("structured_outputs":{"json":{"type":"null"}})").json_schema(),
            R"({"type":"null"})");
  EXPECT_EQ(read(R"("structured_outputs":{"regex":"a+"})").regex(), "a+");
  EXPECT_EQ(read(R"("structured_outputs":{"grammar":"root ::= x"})").grammar(), "root ::= x");
  EXPECT_THAT(read(R"("structured_outputs":{"choice":["a","b"]})").choices().strings(),
              ElementsAre("a", "b"));
}

TEST(ApiRequestTest, ToolsAreLeftOutIfNoneIsToBeChosen) {
  const auto request = ReadChat(R"("tools":[{"type":"function"}],"tool_choice":"none")");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->proto.messages().tools_size(), 0);
  EXPECT_FALSE(request->parse_tool_calls);
}

TEST(ApiRequestTest, CallsThatMustComeAreStructuredOutput) {
  const auto calls = [](const std::string& fields, const char* strict = "") {
    const auto tool = [&](const char* name) {
      return std::string(R"({"type":"function","function":{"name":")") + name + "\"" + strict +
             "}}";
    };
    const auto request = ReadChat(R"("tools":[)" + tool("f") + "," + tool("g") + "]" + fields);
    EXPECT_TRUE(request.ok() && request->parse_tool_calls) << request.status();
    return request.ok() ? request->proto.structured_output() : v1::StructuredOutput();
  };
  EXPECT_FALSE(calls("").has_tool_calls());
  EXPECT_FALSE(calls(R"(,"tool_choice":"auto")").has_tool_calls());
  const v1::ToolCalls any = calls(R"(,"tool_choice":"required")").tool_calls();
  EXPECT_TRUE(any.tools_size() == 2 && !any.optional() && !any.one());
  const v1::ToolCalls named =
      calls(R"(,"tool_choice":{"type":"function","function":{"name":"g"}})").tool_calls();
  EXPECT_THAT(named.tools(), ElementsAre(R"({"type":"function","function":{"name":"g"}})"));
  EXPECT_TRUE(named.one() && !named.optional());
  const v1::ToolCalls single = calls(R"(,"parallel_tool_calls":false)").tool_calls();
  EXPECT_TRUE(single.tools_size() == 2 && single.optional() && single.one());
  const v1::ToolCalls strict = calls("", R"(,"strict":true)").tool_calls();
  EXPECT_TRUE(strict.tools_size() == 2 && strict.optional() && !strict.one());
  EXPECT_TRUE(
      calls(R"(,"response_format":{"type":"json_object"})", R"(,"strict":true)").json_object());
}

TEST(ApiRequestTest, PromptsAreTextOrTokens) {
  EXPECT_EQ(ReadCompletion(R"("prompt":"a")")->proto.prompt(), "a");
  EXPECT_EQ(ReadCompletion(R"("prompt":["a"])")->proto.prompt(), "a");
  EXPECT_THAT(ReadCompletion(R"("prompt":[1,2])")->proto.token_ids().ids(), ElementsAre(1u, 2u));
  EXPECT_THAT(ReadCompletion(R"("prompt":[[1,2]])")->proto.token_ids().ids(), ElementsAre(1u, 2u));
  EXPECT_EQ(ReadCompletion(R"("prompt":"a","logprobs":0)")->proto.logprobs(), 1u);
  EXPECT_FALSE(ReadCompletion(R"("stream":false)")->proto.has_prompt());
}

TEST(ApiRequestTest, SeveralPromptsAreReadInOrder) {
  HttpRequest http;
  http.body = R"({"prompt":["a",[1,2],"b"],"n":2})";
  const auto request = ReadApiRequest(http, Endpoint::kCompletions, "toy");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->proto.prompt(), "a");
  ASSERT_EQ(request->more_prompts.size(), 2u);
  EXPECT_THAT(request->more_prompts[0].tokens.ids(), ElementsAre(1u, 2u));
  EXPECT_EQ(request->more_prompts[1].text, "b");
  for (const std::string& wrong : {std::string(R"(["a",{}])"), R"(["a",["b"]])" + std::string(),
                                   "[" + std::string(2 * kMostPrompts, '1') + ",[1]]"}) {
    http.body = R"({"prompt":)" + wrong + "}";
    EXPECT_FALSE(ReadApiRequest(http, Endpoint::kCompletions, "toy").ok()) << wrong;
  }
  std::string many = R"(["a")";
  for (size_t i = 0; i < kMostPrompts; ++i) many += R"(,"a")";
  http.body = R"({"prompt":)" + many + "]}";
  EXPECT_FALSE(ReadApiRequest(http, Endpoint::kCompletions, "toy").ok());
}

struct Wrong {
  std::string fields;
  std::string param;
};

std::string ParamOf(const absl::Status& status) {
  const auto param = status.GetPayload("rivulet/param");
  return param.has_value() ? std::string(*param) : "";
}

TEST(ApiRequestTest, WrongAndUnservedFieldsOfChatsAreRefusedByName) {
  const Wrong cases[] = {
      {R"("temperature":"hot")", "temperature"},
      {R"("max_tokens":-1)", "max_tokens"},
      {R"("max_tokens":1.5)", "max_tokens"},
      {R"("max_tokens":1e300)", "max_tokens"},
      {R"("max_tokens":99999999999)", "max_tokens"},
      {R"("max_tokens":1,"max_completion_tokens":2)", "max_tokens"},
      {R"("top_k":-2)", "top_k"},
      {R"("top_k":4294967296)", "top_k"},
      {R"("top_k":18446744073709551615)", "top_k"},
      {R"("n":-1)", "n"},
      {R"("stop":5)", "stop"},
      {R"("stop":[5])", "stop"},
      {R"("stop_token_ids":["a"])", "stop_token_ids"},
      {R"("logit_bias":{"a":1})", "logit_bias"},
      {R"("logit_bias":{"7":1,"07":2})", "logit_bias"},
      {R"("logit_bias":{" 7":1})", "logit_bias"},
      {R"("logit_bias":{"1":"b"})", "logit_bias"},
      {R"("logit_bias":[1])", "logit_bias"},
      {R"("logprobs":3)", "logprobs"},
      {R"("top_logprobs":3)", "top_logprobs"},
      {R"("stream":"yes")", "stream"},
      {R"("stream_options":{"include_usage":true})", "stream_options"},
      {R"("stream":true,"stream_options":{"what":1})", "stream_options.what"},
      {R"("response_format":{"type":"xml"})", "response_format.type"},
      {R"("response_format":{"type":"json_schema"})", "response_format.json_schema"},
      {R"("structured_outputs":{"regex":"a","json_object":true})", "structured_outputs"},
      {R"("structured_outputs":{"choice":[1]})", "structured_outputs.choice"},
      {R"("response_format":{"type":"json_object"},"structured_outputs":{"regex":"a"})",
       "structured_outputs"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice"},
      {R"("tool_choice":{"type":"allowed_tools"})", "tool_choice"},
      {R"("tool_choice":3)", "tool_choice"},
      {R"("tools":[{"type":"function","function":{"name":"g"}}],
          "tool_choice":{"type":"function","function":{"name":"f"}})",
       "tool_choice"},
      {R"("tools":[{"type":"function","function":{"name":"g"}}],"tool_choice":"required",
          "response_format":{"type":"json_object"})",
       "tool_choice"},
      {R"("tools":["f"])", "tools[0]"},
      {R"("functions":[])", "functions"},
      {R"("function_call":"none")", "function_call"},
      {R"("modalities":["audio"])", "modalities"},
      {R"("audio":{})", "audio"},
      {R"("reasoning_effort":"high")", "reasoning_effort"},
      {R"("web_search_options":{})", "web_search_options"},
      {R"("service_tier":"flex")", "service_tier"},
      {R"("store":true)", "store"},
      {R"("best_of":2)", "best_of"},
      {R"("prompt":"a")", "prompt"},
      {R"("chat_template_kwargs":[])", "chat_template_kwargs"},
      {R"("temprature":1)", "temprature"},
  };
  for (const auto& [fields, param] : cases) {
    const auto request = ReadChat(fields);
    EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument) << fields;
    EXPECT_EQ(ParamOf(request.status()), param) << request.status();
    EXPECT_THAT(std::string(request.status().message()), HasSubstr(param));
  }
}

TEST(ApiRequestTest, WrongAndUnservedFieldsOfCompletionsAreRefusedByName) {
  const Wrong cases[] = {
      {R"("prompt":["a","b"])", "prompt"},  // on a session
      {R"("prompt":[1,"b"])", "prompt"},
      {R"("prompt":[-1])", "prompt"},
      {R"("prompt":[4294967296])", "prompt"},
      {R"("prompt":{})", "prompt"},
      {R"("prompt":5)", "prompt"},
      {R"("echo":1)", "echo"},
      {R"("echo":true,"logprobs":1)", "echo"},  // on a session
      {R"("echo":true,"logprobs":1,"n":2)", "echo"},
      {R"("suffix":"b")", "suffix"},
      {R"("max_completion_tokens":1)", "max_completion_tokens"},
      {R"("messages":[])", "messages"},
  };
  for (const auto& [fields, param] : cases) {
    EXPECT_EQ(ParamOf(ReadCompletion(fields).status()), param) << fields;
  }
}

// A session, or a salt, by a variable that the program has not set.
TEST(ApiRequestTest, NamesAreNotEmpty) {
  EXPECT_EQ(ParamOf(ReadCompletion(R"("prompt":"a","cache_salt":"")").status()), "cache_salt");
  HttpRequest http;
  http.body = R"({"prompt":"a"})";
  http.headers = {{"x-session-id", ""}};
  const auto read = ReadApiRequest(http, Endpoint::kCompletions, "toy");
  EXPECT_TRUE(absl::IsInvalidArgument(read.status()));
  EXPECT_EQ(ParamOf(read.status()), "x-session-id");
}

TEST(ApiRequestTest, AHeaderIsThereOnce) {
  for (const char* const name : {"x-session-id", "x-request-id"}) {
    HttpRequest http;
    http.body = R"({"prompt":"a"})";
    http.headers = {{name, "s"}, {"other", "s"}};
    EXPECT_TRUE(ReadApiRequest(http, Endpoint::kCompletions, "toy").ok());
    http.headers.push_back({absl::AsciiStrToUpper(name), "s"});
    const auto read = ReadApiRequest(http, Endpoint::kCompletions, "toy");
    EXPECT_TRUE(absl::IsInvalidArgument(read.status()));
    EXPECT_EQ(ParamOf(read.status()), name);
  }
}

TEST(ApiRequestTest, WrongMessagesAreRefusedByName) {
  const Wrong cases[] = {
      {R"({})", "messages"},
      {R"({"messages":"hi"})", "messages"},
      {R"({"messages":["hi"]})", "messages[0]"},
      {R"({"messages":[{"content":"hi"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user","content":5}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":["a"]}]})", "messages[0].content[0]"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})",
       "messages[0].content[0].type"},
      {R"({"messages":[{"role":"a","tool_calls":{}}]})", "messages[0].tool_calls"},
      {R"({"messages":[{"role":"a","function_call":{}}]})", "messages[0].function_call"},
  };
  for (const auto& [body, param] : cases) {
    EXPECT_EQ(ParamOf(Read(Endpoint::kChat, body).status()), param) << body;
  }
  EXPECT_FALSE(Read(Endpoint::kChat, "[]").ok());
  EXPECT_FALSE(Read(Endpoint::kChat, "").ok());
}

TEST(ApiRequestTest, AnotherModelIsNotFound) {
  const auto request = ReadChat(R"("model":"gpt-5")");
  EXPECT_EQ(request.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(request.status().message()), HasSubstr("this is 'toy'"));
}

}  // namespace
}  // namespace rivulet::openai
