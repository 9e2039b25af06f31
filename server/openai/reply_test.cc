// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>

#include "server/scheduler/test_support.h"
#include "server/service/validation.h"

namespace rivulet::openai {
namespace {

using testing::EndsWith;
using testing::StartsWith;

const FakeTokenizer kTokenizer;

v1::GenerateResponse Message(const std::string& text, v1::FinishReason finish = {},
                             uint32_t index = 0) {
  v1::GenerateResponse message;
  message.set_text(text);
  message.set_index(index);
  message.set_request_id("r");
  message.set_finish_reason(finish);
  if (finish == v1::FINISH_REASON_UNSPECIFIED) return message;
  message.mutable_usage()->set_prompt_tokens(5);
  message.mutable_usage()->set_cached_tokens(3);
  message.mutable_usage()->set_completion_tokens(2);
  return message;
}

void AddLogprob(float logprob, uint32_t token, v1::GenerateResponse& message) {
  v1::TokenLogprob& added = *message.add_logprobs();
  added.set_token_id(token);
  added.set_text("é");
  added.set_logprob(logprob);
  for (const float other : {-1.f, -2.f}) {
    v1::TokenLogprob& top = *added.add_top();
    top.set_logprob(other);
    top.set_text(other == -1.f ? "x" : "y");
  }
}

Json Parse(const std::string& event) {
  EXPECT_THAT(event, StartsWith("data: "));
  EXPECT_THAT(event, EndsWith("\n\n"));
  return *ParseJson(event.substr(6));
}

TEST(ReplyTest, AStreamTellsThinkingFromTheAnswer) {
  Reply reply({.stream = true, .include_usage = true, .model = "toy"}, nullptr);
  v1::GenerateResponse first = Message("hm</th");
  first.set_starts_thinking(true);
  const Json begin = Parse(*reply.Add(first));
  EXPECT_EQ(begin["id"], "chatcmpl-r");
  EXPECT_EQ(begin["object"], "chat.completion.chunk");
  EXPECT_EQ(Dump(begin["choices"][0]["delta"]),
            R"({"role":"assistant","content":"","reasoning_content":"hm"})");
  EXPECT_TRUE(begin["choices"][0]["finish_reason"].is_null());
  EXPECT_TRUE(begin["usage"].is_null());
  const Json next = Parse(*reply.Add(Message("ink>\n\nYes")));
  EXPECT_EQ(Dump(next["choices"][0]["delta"]), R"({"content":"Yes"})");
  const Json last = Parse(*reply.Add(Message("", v1::FINISH_REASON_EOS)));
  EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
  const std::string events = reply.LastEvents();
  EXPECT_THAT(events, EndsWith("\n\ndata: [DONE]\n\n"));
  const Json usage = *ParseJson(events.substr(6, events.find('\n') - 6));
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(Dump(usage["usage"]), R"({"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,)"
                                  R"("prompt_tokens_details":{"cached_tokens":3},)"
                                  R"("completion_tokens_details":{"accepted_prediction_tokens":0,)"
                                  R"("rejected_prediction_tokens":0}})");
}

TEST(ReplyTest, AWholeReplyHasAllChoices) {
  Reply reply({.choices = 2, .model = "toy"}, nullptr);
  EXPECT_EQ(*reply.Add(Message("<think>a</think>b")), "");
  v1::GenerateResponse stopped = Message("two", v1::FINISH_REASON_STOP, 1);
  stopped.set_matched_stop("!");
  EXPECT_EQ(*reply.Add(stopped), "");
  EXPECT_EQ(*reply.Add(Message("c", v1::FINISH_REASON_LENGTH)), "");
  const Json whole = *ParseJson(reply.Whole());
  EXPECT_EQ(whole["object"], "chat.completion");
  ASSERT_EQ(whole["choices"].size(), 2u);
  EXPECT_EQ(
      Dump(whole["choices"][0]),
      R"({"index":0,"message":{"role":"assistant","content":"bc","refusal":null,)"
      R"("reasoning_content":"a"},"logprobs":null,"finish_reason":"length","stop_reason":null})");
  EXPECT_EQ(whole["choices"][1]["finish_reason"], "stop");
  EXPECT_EQ(whole["choices"][1]["stop_reason"], "!");
  EXPECT_EQ(whole["usage"]["completion_tokens"], 4);
}

TEST(ReplyTest, GuessedTokensAreMarked) {
  v1::GenerateResponse first = Message("ab"), last = Message("cd", v1::FINISH_REASON_LENGTH);
  for (v1::GenerateResponse* const message : {&first, &last}) {
    message->add_token_ids(7);
    message->add_token_ids(8);
    message->add_guessed(message == &first ? 0 : 1);
  }
  first.set_position(12);
  last.mutable_usage()->set_drafted_tokens(5);
  last.mutable_usage()->set_accepted_tokens(2);
  Reply stream({.stream = true, .token_ids = true, .model = "toy"}, nullptr);
  const Json begin = Parse(*stream.Add(first)), end = Parse(*stream.Add(last));
  EXPECT_EQ(Dump(begin["choices"][0]["guessed_tokens"]), "[0]");
  EXPECT_EQ(begin["choices"][0]["position"], 12);
  EXPECT_EQ(Dump(end["choices"][0]["guessed_tokens"]), "[1]");
  EXPECT_FALSE(end["choices"][0].contains("position"));
  Reply reply({.token_ids = true, .model = "toy"}, nullptr);
  ASSERT_TRUE(reply.Add(first).ok());
  ASSERT_TRUE(reply.Add(last).ok());
  const Json whole = *ParseJson(reply.Whole());
  EXPECT_EQ(Dump(whole["choices"][0]["guessed_tokens"]), "[0,3]");
  EXPECT_EQ(Dump(whole["usage"]["completion_tokens_details"]),
            R"({"accepted_prediction_tokens":2,"rejected_prediction_tokens":3})");
}

TEST(ReplyTest, ToolCallsAreNotContent) {
  auto tools = std::make_shared<ToolSchemas>();
  tools->Add(*ParseJson(R"({"function":{"name":"f"}})"));
  const std::string said =
      R"(<think>t</think><tool_call>{"name":"f","arguments":{"x":1}}</tool_call>)";
  for (const bool stream : {false, true}) {
    Reply reply({.stream = stream, .model = "toy", .tools = tools}, nullptr);
    const std::string begin = *reply.Add(Message(said.substr(0, 40)));
    EXPECT_EQ(begin.find("tool_call"), std::string::npos);
    const std::string event = *reply.Add(Message(said.substr(40), v1::FINISH_REASON_EOS));
    const Json choice =
        stream ? Parse(event)["choices"][0] : (*ParseJson(reply.Whole()))["choices"][0];
    const Json& message = choice[stream ? "delta" : "message"];
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    ASSERT_EQ(message["tool_calls"].size(), 1u);
    const Json& call = message["tool_calls"][0];
    EXPECT_EQ(call["id"].get<std::string>().size(), 9u);
    EXPECT_EQ(call.contains("index"), stream);
    EXPECT_EQ(Dump(call["function"]), R"({"name":"f","arguments":"{\"x\":1}"})");
    EXPECT_TRUE(stream || message["content"].is_null());
  }
}

TEST(ReplyTest, ChatLogprobsHaveBytesAndNoInfinity) {
  Reply reply({.logprobs = true, .top_logprobs = 1, .model = "toy"}, &kTokenizer);
  v1::GenerateResponse message = Message("", v1::FINISH_REASON_EOS);
  AddLogprob(-std::numeric_limits<float>::infinity(), FakeTokenizer::kFirstByte, message);
  ASSERT_TRUE(reply.Add(message).ok());
  const Json whole = *ParseJson(reply.Whole());
  EXPECT_EQ(Dump(whole["choices"][0]["logprobs"]["content"][0]),
            R"({"token":"é","logprob":-9999.0,"bytes":[195],)"
            R"("top_logprobs":[{"token":"x","logprob":-1.0,"bytes":[97]}]})");
}

TEST(ReplyTest, CompletionLogprobsCountCharacters) {
  Reply reply(
      {.endpoint = Endpoint::kCompletions, .logprobs = true, .top_logprobs = 2, .model = "toy"},
      nullptr);
  v1::GenerateResponse message = Message("<think>", v1::FINISH_REASON_EOS);
  AddLogprob(-0.5, 1, message);
  AddLogprob(-0.5, 1, message);
  ASSERT_TRUE(reply.Add(message).ok());
  const Json choice = (*ParseJson(reply.Whole()))["choices"][0];
  EXPECT_EQ(choice["text"], "<think>");  // text is as it is
  EXPECT_EQ(Dump(choice["logprobs"]["text_offset"]), "[0,1]");
  EXPECT_EQ(Dump(choice["logprobs"]["top_logprobs"][1]), R"({"x":-1.0,"y":-2.0})");
}

TEST(ReplyTest, ATooLongReplyIsRefusedUnlessItIsStreamed) {
  const v1::GenerateResponse message = Message(std::string(kMaxMessageBytes / 2, 'a'));
  Reply whole({.model = "toy"}, nullptr);
  EXPECT_TRUE(whole.Add(message).ok());
  EXPECT_TRUE(whole.Add(Message("b")).ok());
  EXPECT_EQ(whole.Add(message).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace rivulet::openai
