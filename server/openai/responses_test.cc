// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// /v1/responses over real sockets, with FakeEngine behind it, whose answers depend on every token
// before them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "model_loader/chat_template.h"
#include "server/grammar/grammar_store.h"
#include "server/openai/door_fixture.h"
#include "server/openai/stored_response.h"

namespace rivulet::openai {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kResponses = "/v1/responses";

class ResponsesTest : public DoorTest {
 protected:
  ResponsesTest() {
    tokenizer_.UseCharacters();
    request_tokenizer_.UseCharacters();
    template_ = ChatTemplate::FromSource(
        "{{ (tools or []) | length }}{% for m in messages %}{{ m.role }}: {{ m.content }}|{% "
        "endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}",
        {});
    model_.chat_template = template_.get();
  }

  static Json Item(const std::string& role, const std::string& text) {
    return {{"role", role}, {"content", text}};
  }
  static Json Body(const Json& input, const std::string& previous = "") {
    Json body = {{"input", input}, {"max_output_tokens", 20}, {"seed", 1}, {"ignore_eos", true}};
    if (!previous.empty()) body["previous_response_id"] = previous;
    return body;
  }
  TestResponse Send(const Json& body) { return Post(kResponses, Dump(body)); }
  Json Ask(const Json& body) {
    const TestResponse response = Send(body);
    EXPECT_EQ(response.status, 200) << response.body;
    return Parse(response);
  }
  static std::string TextOf(const Json& response) {
    return response["output"][0]["content"][0]["text"].get<std::string>();
  }
  static std::string IdOf(const Json& response) { return response["id"].get<std::string>(); }
  std::vector<uint32_t> TokensOf(const Json& response) {
    const auto lease = sessions_.LeaseForReading(IdOf(response));
    EXPECT_TRUE(lease.ok()) << lease.status();
    return lease.ok() ? lease->CopyTokens(0) : std::vector<uint32_t>();
  }
  TestResponse On(const std::string& method, const std::string& id) {
    return TestHttpClient(http_->port()).Request(method, std::string(kResponses) + "/" + id);
  }
  static std::vector<Json> Events(const std::string& body) {
    std::vector<Json> events;
    for (size_t at = 0; (at = body.find("\ndata: ", at)) != std::string::npos;) {
      at += 7;
      events.push_back(*ParseJson(body.substr(at, body.find("\n\n", at) - at)));
    }
    return events;
  }

  std::unique_ptr<ChatTemplate> template_;
};

TEST_F(ResponsesTest, AResponseIsWholeAndKept) {
  Json body = Body("hi");
  body["metadata"] = {{"k", "v"}};
  const Json response = Ask(body);
  EXPECT_EQ(response["object"], "response");
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(response["metadata"]["k"], "v");
  EXPECT_EQ(response["usage"]["input_tokens"], std::string("0user: hi|assistant: ").size());
  EXPECT_EQ(response["usage"]["output_tokens"], 20);
  EXPECT_EQ(TextOf(response).size(), 20u);
  EXPECT_EQ(Parse(On("GET", IdOf(response))), response);
  EXPECT_EQ(Parse(On("POST", IdOf(response) + "/cancel")), response);  // it has ended
}

TEST_F(ResponsesTest, InputItemsAreListed) {
  Json items = Json::array(
      {Item("user", "hi"), {{"id", "mine"}, {"role", "assistant"}, {"content", "yes"}}});
  for (int i = 0; i < 3; ++i) items.push_back(Item("user", std::to_string(i)));
  const std::string id = IdOf(Ask(Body(items))), path = id + "/input_items";
  const Json page = Parse(On("GET", path + "?limit=2"));
  EXPECT_EQ(page["object"], "list");
  EXPECT_TRUE(page["has_more"]);
  ASSERT_EQ(page["data"].size(), 2u);
  EXPECT_EQ(page["data"][0]["content"][0]["text"], "2");
  EXPECT_EQ(page["data"][0]["content"][0]["type"], "input_text");
  EXPECT_EQ(page["first_id"], page["data"][0]["id"]);
  EXPECT_EQ(page["last_id"], page["data"][1]["id"]);
  const Json rest = Parse(On("GET", path + "?after=" + page["last_id"].get<std::string>()));
  EXPECT_FALSE(rest["has_more"]);
  ASSERT_EQ(rest["data"].size(), 3u);
  EXPECT_EQ(rest["data"][1]["id"], "mine");
  EXPECT_EQ(rest["data"][1]["content"][0]["type"], "output_text");
  EXPECT_EQ(rest["data"][2]["content"][0]["text"], "hi");
  const Json rising = Parse(On("GET", path + "?order=asc&after=mine&limit=1"));
  EXPECT_EQ(rising["data"][0]["content"][0]["text"], "0");
  const Json text = Parse(On("GET", IdOf(Ask(Body("hello", id))) + "/input_items"));
  ASSERT_EQ(text["data"].size(), 1u);  // those of this response alone
  EXPECT_EQ(text["data"][0]["role"], "user");
  for (const char* const wrong : {"limit=0", "limit=101", "limit=x", "order=up", "after=other"}) {
    const TestResponse refused = On("GET", path + "?" + wrong);
    EXPECT_EQ(refused.status, 400) << wrong;
    EXPECT_THAT(wrong, testing::StartsWith(Parse(refused)["error"]["param"].get<std::string>()));
  }
  EXPECT_EQ(On("GET", "resp_none/input_items").status, 404);
}

// The tokens are those of the same conversation as one request.
TEST_F(ResponsesTest, AChainHasTheTokensOfTheWholeConversation) {
  for (const bool instructed : {false, true}) {
    Json items = Json::array();
    std::string previous;
    for (const char* const said : {"hi", "what?", "and then", "the end"}) {
      items.push_back(Item("user", said));
      Json turn = Body(said, previous), whole = Body(items);
      if (instructed) turn["instructions"] = whole["instructions"] = "be brief";
      const Json one = Ask(turn), other = Ask(whole);
      EXPECT_EQ(TextOf(one), TextOf(other));
      EXPECT_EQ(TokensOf(one), TokensOf(other));
      EXPECT_EQ(one["usage"]["input_tokens"], other["usage"]["input_tokens"]);
      if (!previous.empty()) {
        EXPECT_GT(one["usage"]["input_tokens_details"]["cached_tokens"], 31);
      }
      items.push_back(Item("assistant", TextOf(one)));
      previous = IdOf(one);
    }
  }
}

TEST_F(ResponsesTest, InstructionsAndToolsAreThoseOfTheTurnAlone) {
  Json first = Body("hi");
  first["instructions"] = "be brief";
  first["tools"] =
      Json::array({{{"type", "function"}, {"name", "f"}, {"parameters", Json::object()}}});
  const Json one = Ask(first);
  const Json items =
      Json::array({Item("user", "hi"), Item("assistant", TextOf(one)), Item("user", "more")});
  Json other = Body("more", IdOf(one)), other_whole = Body(items);
  EXPECT_EQ(TokensOf(Ask(other)), TokensOf(Ask(other_whole)));
  other["instructions"] = other_whole["instructions"] = "be kind";
  const Json changed = Ask(other);
  EXPECT_EQ(TokensOf(changed), TokensOf(Ask(other_whole)));
  EXPECT_EQ(changed["usage"]["input_tokens"],
            TokensOf(changed).size() - changed["usage"]["output_tokens"].get<size_t>());
}

TEST_F(ResponsesTest, AnyResponseCanBeContinuedAnyNumberOfTimes) {
  const Json first = Ask(Body("hi"));
  const Json second = Ask(Body("a", IdOf(first)));
  std::vector<std::string> texts(4);
  for (const Json* const from : {&first, &second}) {  // an older one and the latest
    std::vector<std::thread> threads;
    for (size_t i = from == &first ? 0 : 1; i < texts.size(); i += 2) {
      threads.emplace_back([&, i] { texts[i] = TextOf(Ask(Body("b", IdOf(*from)))); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(texts[0], texts[2]);
  EXPECT_EQ(texts[1], texts[3]);
  const auto whole = [&](std::vector<Json> items) { return TextOf(Ask(Body(Json(items)))); };
  EXPECT_EQ(texts[0],
            whole({Item("user", "hi"), Item("assistant", TextOf(first)), Item("user", "b")}));
  EXPECT_EQ(texts[1],
            whole({Item("user", "hi"), Item("assistant", TextOf(first)), Item("user", "a"),
                   Item("assistant", TextOf(second)), Item("user", "b")}));
}

TEST_F(ResponsesTest, WithoutStoreNothingIsKept) {
  const Json first = Ask(Body("hi"));
  Json body = Body("more", IdOf(first));
  const std::string kept = TextOf(Ask(body));
  const size_t sessions = sessions_.List("", 10).size();
  body["store"] = false;
  const Json second = Ask(body);
  EXPECT_EQ(TextOf(second), kept);
  EXPECT_EQ(sessions_.List("", 10).size(), sessions);
  EXPECT_EQ(On("GET", IdOf(second)).status, 404);
  const TestResponse missing = Send(Body("x", IdOf(second)));
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(Parse(missing)["error"]["code"], "previous_response_not_found");
  EXPECT_EQ(Parse(missing)["error"]["param"], "previous_response_id");
}

// A turn by x-session-id, or a rewind, may leave another context in its session.
TEST_F(ResponsesTest, AResponseWhoseSessionWasUsedOtherwiseIsNotContinued) {
  const Json first = Ask(Body("hi"));
  EXPECT_TRUE(sessions_.LeaseForTurn(IdOf(first)).ok());
  const TestResponse refused = Send(Body("more", IdOf(first)));
  EXPECT_EQ(refused.status, 404);
  EXPECT_THAT(refused.body, testing::HasSubstr("previous_response_not_found"));
  EXPECT_EQ(sessions_.List("", 10).size(), 1u) << "no fork is left";
  const Json second = Ask(Body("hi"));
  ASSERT_TRUE(sessions_.Rewind(IdOf(second), 0).ok());
  EXPECT_EQ(Send(Body("more", IdOf(second))).status, 404);
}

TEST_F(ResponsesTest, ADeletedResponseSaysSo) {
  const std::string id = IdOf(Ask(Body("hi")));
  EXPECT_EQ(Parse(On("DELETE", id))["deleted"], true);
  for (const TestResponse& missing :
       {On("GET", id), On("DELETE", id), On("POST", id + "/cancel"), Send(Body("x", id))}) {
    EXPECT_EQ(missing.status, 404);
    EXPECT_THAT(missing.body, HasSubstr("it was deleted"));
    EXPECT_THAT(missing.body, Not(HasSubstr("session")));
  }
  ASSERT_TRUE(sessions_.Create("mine", "").ok());
  EXPECT_EQ(On("DELETE", "mine").status, 404);  // a session, but no response
  EXPECT_TRUE(sessions_.Get("mine").ok());
}

TEST_F(ResponsesTest, WhatCannotBeAnIdIsMissingToo) {
  for (const std::string& id : {std::string("a%20b"), std::string(200, 'a')}) {
    const TestResponse missing = On("GET", id);
    EXPECT_EQ(missing.status, 404) << id;
    EXPECT_EQ(Parse(missing)["error"]["code"], "response_not_found");
    EXPECT_THAT(missing.body, Not(HasSubstr("session")));
  }
  const TestResponse previous = Send(Body("x", "a b"));
  EXPECT_EQ(previous.status, 404);
  EXPECT_EQ(Parse(previous)["error"]["param"], "previous_response_id");
}

TEST_F(ResponsesTest, ErrorsNameTheFieldThatWasSent) {
  const auto refused = [&](const Json& fields) {
    Json body = Body("hi");
    body.update(fields);
    const TestResponse response = Send(body);
    EXPECT_EQ(response.status, 400) << response.body;
    return Parse(response)["error"];
  };
  EXPECT_EQ(refused({{"temperature", -1}})["param"], "temperature");
  const Json top = refused({{"top_logprobs", 21}});
  EXPECT_EQ(top["param"], "top_logprobs");
  EXPECT_EQ(top["message"], "top_logprobs = 21: at most 20");
  EXPECT_EQ(refused({{"min_tokens", 21}})["message"],
            "min_tokens = 21 is over max_output_tokens = 20");
  model_.grammars = std::make_shared<GrammarStore>(request_tokenizer_);
  const Json format = {{"type", "json_schema"}, {"name", "a"}, {"schema", {{"type", "what"}}}};
  EXPECT_EQ(refused({{"text", {{"format", format}}}})["param"], "text.format");
  model_.chat_template = nullptr;
  EXPECT_EQ(refused(Json::object())["param"], "input");
}

TEST_F(ResponsesTest, AResponseBelongsToItsTenant) {
  const std::string id = IdOf(Ask(Body("hi")));
  EXPECT_TRUE(FindResponse(sessions_, id).ok());
  const SessionKey others("other", id);
  EXPECT_TRUE(absl::IsNotFound(FindResponse(sessions_, others).status()));
  EXPECT_TRUE(absl::IsNotFound(ForkResponse(sessions_, others, "x").status()));
  EXPECT_TRUE(absl::IsNotFound(DeleteResponse(sessions_, others)));
}

TEST_F(ResponsesTest, AStreamHasTypedEvents) {
  Json body = Body("hi");
  body["top_logprobs"] = 1;
  const Json whole = Ask(body);
  body["stream"] = true;
  const TestResponse response = Send(body);
  EXPECT_EQ(response.Header("Content-Type"), "text/event-stream");
  const std::vector<Json> events = Events("\n" + response.body);
  ASSERT_GT(events.size(), 8u);
  std::string text;
  size_t logprobs = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["sequence_number"], i);
    if (events[i]["type"] != "response.output_text.delta") continue;
    text += events[i]["delta"].get<std::string>();
    logprobs += events[i]["logprobs"].size();
  }
  EXPECT_EQ(text, TextOf(whole));
  EXPECT_EQ(logprobs, 20u);
  EXPECT_EQ(events[0]["type"], "response.created");
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_EQ(events[1]["type"], "response.in_progress");
  EXPECT_EQ(events[2]["type"], "response.output_item.added");
  EXPECT_EQ(events[3]["type"], "response.content_part.added");
  const Json& last = events.back();
  EXPECT_EQ(last["type"], "response.incomplete");
  EXPECT_EQ(last["response"]["output"][0]["content"], whole["output"][0]["content"]);
  EXPECT_EQ(Parse(On("GET", IdOf(last["response"]))), last["response"]);
}

class RunningResponseTest : public ResponsesTest {
 protected:
  // Streams up to its first event.
  std::string StartEndlessResponse(TestHttpClient& client) {
    engine_.pace = milliseconds(1);
    Json body = Body("hi");
    body["max_output_tokens"] = 1000000;
    body["stream"] = true;
    const std::string text = Dump(body);
    client.Send("POST /v1/responses HTTP/1.1\r\nHost: h\r\nContent-Length: " +
                std::to_string(text.size()) + "\r\n\r\n" + text);
    while (seen_.find("response.in_progress") == std::string::npos) seen_ += client.Receive();
    const size_t at = seen_.find("resp_");
    return seen_.substr(at, seen_.find('"', at) - at);
  }
  std::string seen_;
};

TEST_F(RunningResponseTest, ItCanBeCancelled) {
  TestHttpClient client(http_->port());
  const std::string id = StartEndlessResponse(client);
  EXPECT_EQ(Parse(On("GET", id))["status"], "in_progress");
  const TestResponse busy = Send(Body("x", id));
  EXPECT_EQ(busy.status, 409);
  EXPECT_NE(busy.Header("Retry-After"), "");
  const TestResponse in_use = On("DELETE", id);
  EXPECT_EQ(in_use.status, 409);
  EXPECT_THAT(in_use.body, HasSubstr("the response"));
  EXPECT_EQ(Parse(On("POST", id + "/cancel"))["status"], "cancelled");
  while (seen_.find("\r\n0\r\n\r\n") == std::string::npos) {
    const std::string piece = client.Receive();
    ASSERT_NE(piece, "");
    seen_ += piece;
  }
  EXPECT_THAT(seen_, HasSubstr("event: response.incomplete"));
  const Json kept = Parse(On("GET", id));
  EXPECT_EQ(kept["status"], "cancelled");
  EXPECT_EQ(TokensOf(kept).size(), kept["usage"]["total_tokens"].get<size_t>());
  EXPECT_EQ(Send(Body("x", id)).status, 200);
}

TEST_F(RunningResponseTest, AVanishedClientLeavesNothing) {
  {
    TestHttpClient client(http_->port());
    StartEndlessResponse(client);
  }
  EXPECT_TRUE(Eventually([&] { return sessions_.List("", 10).empty(); }));
}

TEST_F(RunningResponseTest, AFailureIsAnEventAndLeavesNothing) {
  TestHttpClient client(http_->port());
  const std::string id = StartEndlessResponse(client);
  engine_.fails = true;
  while (seen_.find("\r\n0\r\n\r\n") == std::string::npos) seen_ += client.Receive();
  EXPECT_THAT(seen_, HasSubstr("event: response.failed"));
  EXPECT_THAT(seen_, HasSubstr(R"("error":{"code":"server_error","message":"no luck"})"));
  EXPECT_EQ(On("GET", id).status, 404);
}

TEST_F(ResponsesTest, ARefusedRequestLeavesNothing) {
  Json body = Body("hi");
  body["temperature"] = -1;
  EXPECT_EQ(Send(body).status, 400);
  EXPECT_TRUE(sessions_.List("", 10).empty());
  EXPECT_EQ(On("POST", "resp_1/other").status, 404);
  EXPECT_EQ(TestHttpClient(http_->port()).Get("/v1/responses/x?stream=true").status, 400);
}

}  // namespace
}  // namespace rivulet::openai
