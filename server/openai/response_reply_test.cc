// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/response_reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/scheduler/test_support.h"
#include "server/service/validation.h"

namespace rivulet::openai {
namespace {

using testing::ElementsAre;

const FakeTokenizer kTokenizer;

v1::GenerateResponse Message(const std::string& text, v1::FinishReason finish = {}) {
  v1::GenerateResponse message;
  message.set_text(text);
  message.set_request_id("r");
  message.set_finish_reason(finish);
  for (const char c : text) {
    if (c >= 'a' && c <= 'z') message.add_token_ids(static_cast<uint32_t>(c - 'a'));
  }
  if (finish == v1::FINISH_REASON_UNSPECIFIED) return message;
  message.mutable_usage()->set_prompt_tokens(5);
  message.mutable_usage()->set_cached_tokens(3);
  message.mutable_usage()->set_completion_tokens(2);
  return message;
}

ResponseFormat Format(bool stream) {
  return {.id = "resp_1", .model = "toy", .stream = stream, .echo = Json::object()};
}

std::vector<Json> Events(const std::string& text) {
  std::vector<Json> events;
  for (size_t at = 0; (at = text.find("\ndata: ", at)) != std::string::npos;) {
    at += 7;
    events.push_back(*ParseJson(text.substr(at, text.find("\n\n", at) - at)));
  }
  return events;
}

std::vector<std::string> Types(const std::vector<Json>& events) {
  std::vector<std::string> types;
  for (const Json& event : events) {
    types.push_back(event["type"].get<std::string>().substr(sizeof("response.") - 1));
  }
  return types;
}

std::shared_ptr<const ToolSchemas> Tools() {
  auto tools = std::make_shared<ToolSchemas>();
  tools->Add({{"type", "function"}, {"function", {{"name", "f"}}}});
  return tools;
}

TEST(ResponseReplyTest, ThinkingTextAndCallsAreItemsOfTheirOwn) {
  ResponseFormat format = Format(true);
  format.tools = Tools();
  ResponseReply reply(std::move(format), nullptr);
  std::string text = *reply.Add(Message("<think>\nhm</thi"));
  text += *reply.Add(Message("nk>\n\nwell"));
  text += *reply.Add(
      Message(R"(<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>)", v1::FINISH_REASON_EOS));
  text += reply.Finish();
  text += reply.LastEvent();
  const std::vector<Json> events = Events(text);
  EXPECT_THAT(Types(events),
              ElementsAre("created", "in_progress", "output_item.added", "content_part.added",
                          "reasoning_text.delta", "reasoning_text.done", "content_part.done",
                          "output_item.done", "output_item.added", "content_part.added",
                          "output_text.delta", "output_text.done", "content_part.done",
                          "output_item.done", "output_item.added", "function_call_arguments.delta",
                          "function_call_arguments.done", "output_item.done", "completed"));
  const Json& output = events.back()["response"]["output"];
  ASSERT_EQ(output.size(), 3u);
  EXPECT_EQ(output[0]["content"][0]["text"], "hm");
  EXPECT_EQ(output[1]["content"][0]["text"], "well");
  EXPECT_EQ(output[1]["status"], "completed");
  EXPECT_EQ(output[2]["name"], "f");
  EXPECT_EQ(output[2]["arguments"], R"({"x":1})");
  EXPECT_EQ(output[2]["call_id"].get<std::string>().size(), 9u);
  EXPECT_EQ(events[14]["output_index"], 2);
  EXPECT_EQ(events[10]["item_id"], output[1]["id"]);
}

TEST(ResponseReplyTest, AReplyCutWhileItThinksHasNoMessage) {
  ResponseReply reply(Format(false), nullptr);
  v1::GenerateResponse message = Message("hm", v1::FINISH_REASON_LENGTH);
  message.set_starts_thinking(true);
  EXPECT_EQ(*reply.Add(message), "");
  EXPECT_EQ(reply.Finish(), "");
  const Json object = *ParseJson(reply.Object());
  ASSERT_EQ(object["output"].size(), 1u);
  EXPECT_EQ(object["output"][0]["type"], "reasoning");
  EXPECT_EQ(object["output"][0]["status"], "incomplete");
  EXPECT_EQ(object["status"], "incomplete");
}

TEST(ResponseReplyTest, AnEmptyAnswerIsAMessage) {
  ResponseReply reply(Format(false), nullptr);
  ASSERT_TRUE(reply.Add(Message("", v1::FINISH_REASON_EOS)).ok());
  reply.Finish();
  const Json object = *ParseJson(reply.Object());
  EXPECT_EQ(object["output"][0]["content"][0]["text"], "");
  EXPECT_EQ(object["status"], "completed");
}

// However the tokens are cut into messages.
TEST(ResponseReplyTest, CountsTheTokensOfItsReasoning) {
  const std::string text = "abc";
  for (const size_t cut : {0u, 1u, 2u, 3u}) {
    ResponseReply reply(Format(false), &kTokenizer);
    v1::GenerateResponse first = Message(text.substr(0, cut));
    first.set_starts_thinking(true);
    ASSERT_TRUE(reply.Add(first).ok());
    ASSERT_TRUE(reply.Add(Message(text.substr(cut), v1::FINISH_REASON_LENGTH)).ok());
    reply.Finish();
    const Json usage = (*ParseJson(reply.Object()))["usage"];
    EXPECT_EQ(usage["output_tokens_details"]["reasoning_tokens"], 3) << cut;
  }
}

TEST(ResponseReplyTest, TheContextCountsUnlessItIsRewritten) {
  for (const uint64_t rewritten : {0u, 100u}) {
    ResponseFormat format = Format(false);
    format.context_tokens = 100;
    ResponseReply reply(std::move(format), nullptr);
    v1::GenerateResponse message = Message("x", v1::FINISH_REASON_EOS);
    message.set_rewritten_tokens(rewritten);
    ASSERT_TRUE(reply.Add(message).ok());
    EXPECT_EQ(reply.tokens(), (rewritten > 0 ? 0 : 100) + 7);
  }
}

TEST(ResponseReplyTest, ItIsBounded) {
  ResponseReply reply(Format(true), nullptr);
  const std::string piece(kMaxMessageBytes / 4, 'x');
  absl::Status status;
  for (int i = 0; i < 5 && status.ok(); ++i) status = reply.Add(Message(piece)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace rivulet::openai
