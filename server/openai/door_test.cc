// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The OpenAI API over real sockets, with FakeEngine behind it.
#include "server/openai/door.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/grammar/grammar_store.h"
#include "server/openai/door_fixture.h"
#include "server/text/detokenizer.h"

namespace rivulet::openai {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(DoorTest, PagesOfOtherSitesAreRefused) {
  const auto from = [&](const std::string& site) {
    return TestHttpClient(http_->port()).Get("/v1/models", {{"Sec-Fetch-Site", site}}).status;
  };
  EXPECT_EQ(from("same-origin"), 200);
  EXPECT_EQ(from("none"), 200);  // typed into the address bar
  EXPECT_EQ(from("cross-site"), 403);
  EXPECT_EQ(from("same-site"), 403);
  const auto of = [&](const std::string& origin) {
    return TestHttpClient(http_->port()).Get("/v1/models", {{"Origin", origin}}).status;
  };
  EXPECT_EQ(of("http://localhost"), 200);  // the client's Host
  EXPECT_EQ(of("http://evil.test"), 403);
  EXPECT_EQ(of("null"), 403);
}

// As if a site's name pointed to this machine: to its browser, the page is one of this server.
TEST_F(DoorTest, OtherNamesOfThePortAreRefused) {
  door_ = nullptr;
  const AllowedHosts hosts({"gpu.lan"});
  std::vector<HttpRoute> others;
  for (const auto& [path, scope] :
       std::vector<std::pair<std::string, std::optional<Scope>>>{{"/metrics", Scope::kMetrics},
                                                                 {"/healthz", std::nullopt},
                                                                 {"/loglevel", Scope::kAdmin}}) {
    const auto answer = [](const std::shared_ptr<HttpExchange>& exchange) {
      exchange->Respond({200, "text/plain", {}, "here"});
    };
    others.push_back({"GET", path, 0, answer, scope});
  }
  const auto status = [&](const std::string& path, const std::string& host) {
    TestHttpClient client(http_->port());
    client.Send("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nOrigin: http://" + host +
                "\r\nSec-Fetch-Site: same-origin\r\n\r\n");
    return client.ReadResponse().status;
  };
  const auto expect = [&](int model) {
    for (const std::string& path : {std::string("/v1/models"), std::string("/loglevel")}) {
      const int good = path == "/loglevel" ? 200 : model;
      for (const char* const host : {"localhost:1", "127.0.0.1:1", "[::1]:1", "GPU.lan:1"}) {
        EXPECT_EQ(status(path, host), good) << host;
      }
      EXPECT_EQ(status(path, "evil.test:1"), 403);
      EXPECT_EQ(status(path, "localhost.evil.test"), 403);
    }
    EXPECT_EQ(status("/metrics", "evil.test:1"), 200);
    EXPECT_EQ(status("/healthz", "evil.test:1"), 200);
  };
  http_->SetRoutes(RoutesWhileLoading(others, authenticator_, hosts));
  expect(503);
  door_ = std::make_unique<Door>(*http_, others, *context_, hosts);
  expect(200);
  TestHttpClient old(http_->port());
  old.Send("GET /v1/models HTTP/1.0\r\n\r\n");  // no browser sends none
  EXPECT_EQ(old.ReadResponse().status, 200);
}

TEST_F(DoorTest, ModelsAreListed) {
  TestHttpClient client(http_->port());
  EXPECT_EQ(Parse(client.Get("/v1/models"))["data"][0]["id"], "toy");
  const Json toy = Parse(client.Get("/v1/models/%74oy"));
  EXPECT_EQ(toy["id"], "toy");
  EXPECT_EQ(toy["rivulet"]["name"], "toy");
  EXPECT_EQ(toy["rivulet"]["state_bytes_per_session"], "1000");
  EXPECT_EQ(toy["rivulet"]["has_tokenizer"], true);
  EXPECT_EQ(toy["rivulet"]["levels"], 0);
  const TestResponse missing = client.Get("/v1/models/gpt");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(Parse(missing)["error"]["code"], "model_not_found");
}

TEST_F(DoorTest, CompletesWholeAndStreamed) {
  const std::string fields = R"("max_tokens":20,"seed":1,"return_token_ids":true)";
  const TestResponse whole = Post(kCompletions, Completion(fields), {{"X-Request-Id", "mine"}});
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(whole.Header("x-request-id"), "mine");
  EXPECT_EQ(whole.Header("Content-Type"), "application/json");
  const Json json = Parse(whole);
  EXPECT_EQ(json["id"], "cmpl-mine");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["choices"][0]["token_ids"].size(), 20u);
  EXPECT_EQ(json["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(json["usage"]["completion_tokens"], 20);

  const TestResponse stream = Post(kCompletions, Completion(fields + R"(,"stream":true)"));
  EXPECT_EQ(stream.Header("Content-Type"), "text/event-stream");
  std::string text, rest = stream.body;
  while (rest.rfind("data: {", 0) == 0) {
    const size_t end = rest.find("\n\n");
    text += (*ParseJson(rest.substr(6, end - 6)))["choices"][0]["text"].get<std::string>();
    rest.erase(0, end + 2);
  }
  EXPECT_EQ(rest, "data: [DONE]\n\n");
  EXPECT_EQ(text, json["choices"][0]["text"].get<std::string>());
  EXPECT_TRUE(Eventually([&] { return calls_.WaitForNone(Clock::now()) == 0; }));
}

TEST_F(DoorTest, SeveralChoices) {
  const Json json = Parse(Post(kCompletions, Completion(R"("max_tokens":5,"n":3,"logprobs":1)")));
  ASSERT_EQ(json["choices"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(json["choices"][i]["index"], i);
    EXPECT_EQ(json["choices"][i]["logprobs"]["tokens"].size(), 5u);
  }
  EXPECT_EQ(json["usage"]["completion_tokens"], 15);
}

// As if each were sent alone.
TEST_F(DoorTest, SeveralPrompts) {
  const auto body = [](const std::string& prompt, bool stream) {
    return R"({"prompt":)" + prompt +
           R"(,"ignore_eos":true,"max_tokens":20,"n":2,"seed":1,"stream":)" +
           (stream ? R"(true,"stream_options":{"include_usage":true}})" : "false}");
  };
  const Json alone[] = {Parse(Post(kCompletions, body(R"("abc")", false))),
                        Parse(Post(kCompletions, body("[3,4]", false)))};
  const Json both = Parse(Post(kCompletions, body(R"(["abc",[3,4]])", false)));
  ASSERT_EQ(both["choices"].size(), 4u) << both;
  std::vector<std::string> texts(4);
  const TestResponse stream = Post(kCompletions, body(R"(["abc",[3,4]])", true));
  Json usage;
  for (size_t at = 0; (at = stream.body.find("data: {", at)) != std::string::npos;) {
    at += 6;
    const auto event = ParseJson(stream.body.substr(at, stream.body.find("\n\n", at) - at));
    ASSERT_TRUE(event.ok());
    if ((*event)["choices"].empty()) usage = (*event)["usage"];
    for (const Json& choice : (*event)["choices"]) {
      texts.at(choice["index"].get<size_t>()) += choice["text"].get<std::string>();
    }
  }
  for (size_t i = 0; i < 4; ++i) {
    const Json& expected = alone[i / 2]["choices"][i % 2];
    EXPECT_EQ(both["choices"][i]["text"], expected["text"]);
    EXPECT_EQ(both["choices"][i]["index"], i);
    EXPECT_EQ(texts[i], expected["text"].get<std::string>());
  }
  EXPECT_EQ(both["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(both["usage"]["completion_tokens"], 80);
  EXPECT_EQ(usage["prompt_tokens"], 5);
  EXPECT_TRUE(Eventually([&] { return calls_.WaitForNone(Clock::now()) == 0; }));
}

TEST_F(DoorTest, AWrongPromptFailsAllOfThem) {
  for (const char* const prompts : {R"(["abc",[100]])", R"([[100],"abc"])"}) {
    for (const char* const stream : {"true", "false"}) {
      const TestResponse refused = Post(
          kCompletions, std::string(R"({"prompt":)") + prompts +
                            R"(,"max_tokens":1000000,"ignore_eos":true,"stream":)" + stream + "}");
      const bool begun = refused.status == 200;  // the first had a token before
      EXPECT_TRUE(begun || refused.status == 400) << refused.body;
      EXPECT_THAT(refused.body, HasSubstr("token id 100 is out of range"));
    }
  }
  EXPECT_TRUE(Eventually([&] { return metrics_.requests_running.value() == 0; }));
}

TEST_F(DoorTest, AVanishedClientCancelsAllItsPrompts) {
  engine_.pace = milliseconds(1);
  {
    TestHttpClient client(http_->port());
    const std::string body =
        R"({"prompt":["abc","abd"],"ignore_eos":true,"max_tokens":1000000,"stream":true})";
    client.Send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    ASSERT_TRUE(Eventually([&] { return metrics_.requests_running.value() == 2; }));
  }
  EXPECT_TRUE(Eventually([&] { return metrics_.requests_running.value() == 0; }));
  EXPECT_TRUE(Eventually([&] { return calls_.WaitForNone(Clock::now()) == 0; }));
}

TEST_F(DoorTest, ASessionIsMadeAndContinued) {
  const auto turn = [&](const std::string& id) {
    return Post(kCompletions, Completion(R"("max_tokens":4)"), {{"x-session-id", id}});
  };
  const TestResponse first = turn("new");
  const std::string id = first.Header("x-session-id");
  ASSERT_EQ(id.size(), 16u);
  EXPECT_EQ(sessions_.Get(id)->tokens, 7u);
  const TestResponse second = turn(id);
  EXPECT_EQ(second.Header("x-session-id"), id);
  EXPECT_GT(Parse(second)["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(sessions_.Get(id)->tokens, 14u);
  const TestResponse missing = turn("other");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(Parse(missing)["error"]["code"], "session_not_found");
  for (const std::string& wrong :
       {std::string("other"), std::string("a/b"), std::string(129, 'a')}) {
    EXPECT_EQ(Parse(turn(wrong))["error"]["param"], "x-session-id") << wrong;
  }
}

// The choices of an echo are the prompt and what comes without one.
TEST_F(DoorTest, EchoesThePrompt) {
  const auto text = [&](const std::string& fields) {
    return Parse(Post(kCompletions, "{\"ignore_eos\":true,\"seed\":1,\"max_tokens\":5," + fields +
                                        "}"))["choices"];
  };
  for (const char* const prompt : {R"("abc")", "[3,4]", R"(["abc",[3,4]])"}) {
    const std::string fields = std::string(R"("n":2,"prompt":)") + prompt;
    const Json alone = text(fields), echoed = text(fields + R"(,"echo":true)");
    ASSERT_EQ(echoed.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      const bool is_text = prompt[1] == 'a' || (prompt[0] == '[' && prompt[1] == '"' && i < 2);
      const std::vector<uint32_t> ids = {3, 4};
      const std::string before = is_text ? "abc" : Detokenize(tokenizer_, ids, true);
      EXPECT_EQ(echoed[i]["text"], before + alone[i]["text"].get<std::string>()) << prompt;
    }
  }
  const Json none = Parse(Post(kCompletions, R"({"prompt":"abc","max_tokens":0,"echo":true})"));
  EXPECT_EQ(none["choices"][0]["text"], "abc");
  const TestResponse stream =
      Post(kCompletions, R"({"prompt":"abc","max_tokens":3,"echo":true,"stream":true,"seed":1})");
  EXPECT_THAT(stream.body, HasSubstr(R"("text":"abc)"));
  EXPECT_EQ(stream.body.find(R"("text":"abc)"), stream.body.rfind(R"("text":"abc)"));
}

// The first token of a context has no value; the others have those of Score.
TEST_F(DoorTest, EchoedPromptsHaveLogprobs) {
  for (const char* const stream : {"false", "true"}) {
    for (const char* const prompt : {R"("abc")", "[3,4,5]"}) {
      const TestResponse response = Post(
          kCompletions, std::string(R"({"max_tokens":2,"ignore_eos":true,"echo":true,)") +
                            R"("logprobs":1,"prompt":)" + prompt + R"(,"stream":)" + stream + "}");
      ASSERT_EQ(response.status, 200) << response.body;
      const bool whole = stream[0] == 'f';
      const std::string first =
          whole ? response.body : response.body.substr(6, response.body.find("\n\n") - 6);
      const Json choice = (*ParseJson(first))["choices"][0];
      const Json& logprobs = choice["logprobs"];
      const size_t tokens = logprobs["tokens"].size();
      ASSERT_GE(tokens, 3u) << choice;
      EXPECT_TRUE(!whole || tokens == 5) << choice;
      EXPECT_TRUE(logprobs["token_logprobs"][0].is_null() && logprobs["top_logprobs"][0].is_null());
      std::string joined;
      for (size_t i = 0; i < tokens; ++i) {
        EXPECT_EQ(logprobs["text_offset"][i], joined.size());
        joined += logprobs["tokens"][i].get<std::string>();
        EXPECT_EQ(logprobs["token_logprobs"][i].is_number(), i > 0) << choice;
      }
      EXPECT_EQ(joined, choice["text"]);
    }
  }
}

TEST_F(DoorTest, AKeyThatIsThereTwiceIsRefused) {
  const TestResponse refused = Post(kCompletions, Completion(R"("max_tokens":1,"max_tokens":2)"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("twice"));
}

TEST_F(DoorTest, ANewSessionLeavesIfItsFirstTurnIsRefused) {
  EXPECT_EQ(Post(kCompletions, Completion(R"("n":0)"), {{"x-session-id", "new"}}).status, 400);
  EXPECT_TRUE(sessions_.List("", 10).empty());
}

TEST_F(DoorTest, ABusySessionSaysWhenToRetry) {
  engine_.pace = milliseconds(1);
  ASSERT_TRUE(sessions_.Create("busy", "").ok());
  const auto lease = sessions_.LeaseForTurn("busy");
  const TestResponse refused =
      Post(kCompletions, Completion(R"("max_tokens":4)"), {{"x-session-id", "busy"}});
  EXPECT_EQ(refused.status, 409);
  EXPECT_EQ(refused.Header("Retry-After"), "1");
  EXPECT_EQ(refused.Header("retry-after-ms"), "100");
  EXPECT_EQ(Parse(refused)["error"]["code"], "session_busy");
  EXPECT_EQ(Parse(refused)["error"]["param"], "x-session-id");
}

TEST_F(DoorTest, AFullQueueSaysWhenToRetry) {
  engine_.pace = milliseconds(1);
  std::vector<TestHttpClient> running;
  for (uint32_t i = 0; i < kSlots; ++i) running.push_back(StartEndless(false));
  std::vector<TestHttpClient> waiting;
  const std::string body = Completion(R"("max_tokens":4)");
  for (int i = 0; i < 2; ++i) {
    waiting.emplace_back(http_->port());
    waiting.back().Send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " +
                        std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  ASSERT_TRUE(Eventually([&] { return metrics_.requests_waiting.value() == 2; }));
  const TestResponse refused = Post(kCompletions, body);
  EXPECT_EQ(refused.status, 429);
  EXPECT_GE(std::stoi(refused.Header("Retry-After")), 1);
  EXPECT_GE(std::stoi(refused.Header("retry-after-ms")), 1);
  EXPECT_EQ(Parse(refused)["error"]["type"], "rate_limit_error");
}

TEST_F(DoorTest, WhatCanNeverFitIsNotToBeRetried) {
  const TestResponse refused = Post(kCompletions, Completion(R"("max_tokens":4,"n":64)"));
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.Header("Retry-After"), "");
  EXPECT_EQ(refused.Header("x-should-retry"), "false");
}

// Each prompt is a request.
TEST_F(DoorTest, MorePromptsThanATenantMayHaveAreNotToBeRetried) {
  Tenant& tenant = *(*authenticator_.Admit(std::nullopt, Scope::kGenerate))->tenant;
  const std::string two = R"({"prompt":["a","b"],"max_tokens":1})";
  for (const TenantLimits& limits :
       {TenantLimits{.max_requests = 1}, TenantLimits{.requests_per_minute = 1}}) {
    tenant.SetLimits(limits);
    const bool open = limits.max_requests > 0;
    const TestResponse refused = Post(kCompletions, two);
    EXPECT_EQ(refused.status, 429) << refused.body;
    EXPECT_EQ(refused.Header("Retry-After"), "");
    EXPECT_EQ(refused.Header("x-should-retry"), "false");
    EXPECT_EQ(Parse(refused)["error"]["param"], "prompt");
    EXPECT_THAT(refused.body, HasSubstr(open ? "max_requests" : "requests_per_minute"));
    EXPECT_THAT(refused.body, Not(HasSubstr("again")));
    EXPECT_EQ(Post(kCompletions, R"({"prompt":"a","max_tokens":1})").status, 200);
    ASSERT_TRUE(WaitUntilIdle());
  }
  tenant.SetLimits({.max_requests = 2});
  EXPECT_EQ(Post(kCompletions, two).status, 200);
  EXPECT_EQ(tenant.metrics.requests_refused.value(), 2u);
}

TEST_F(DoorTest, ErrorsNameTheFieldThatWasSent) {
  model_.grammars = std::make_shared<GrammarStore>(request_tokenizer_);
  const struct {
    const char *fields, *param, *message;
  } kCases[] = {
      {R"("temperature":-1)", "temperature", "temperature is -1"},
      {R"("logit_bias":{"1":200})", "logit_bias", "logit_bias[1] is 200"},
      {R"("stop":["a",""])", "stop", "stop[1] is empty"},
      {R"("stop_token_ids":[100])", "stop_token_ids", "stop_token_ids: token id 100"},
      {R"("min_tokens":9,"max_tokens":8)", "min_tokens", "min_tokens = 9 is over max_tokens = 8"},
      {R"("logprobs":21)", "logprobs", "logprobs = 21: at most 20"},
      {R"("n":65)", "n", "n = 65"},
      {R"("structured_outputs":{"regex":"("})", "structured_outputs.regex",
       "structured_outputs.regex: "},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":"what"}}})",
       "response_format", "response_format: "},
  };
  for (const auto& [fields, param, message] : kCases) {
    const TestResponse refused = Post(kCompletions, Completion(fields));
    EXPECT_EQ(refused.status, 400) << refused.body;
    EXPECT_EQ(Parse(refused)["error"]["param"], param) << refused.body;
    EXPECT_THAT(Parse(refused)["error"]["message"].get<std::string>(), StartsWith(message));
  }
  const std::string salt = R"("cache_salt":")" + std::string(1 << 20, 's') + '"';
  const TestResponse salted = Post(kCompletions, Completion(salt));
  EXPECT_EQ(salted.status, 400);
  EXPECT_EQ(Parse(salted)["error"]["param"], "cache_salt");
  EXPECT_THAT(salted.body, HasSubstr("bytes of cache_salt = 1048576: at most 256"));
  EXPECT_LT(salted.body.size(), 1000u) << "the salt itself is not repeated";
  const TestResponse tokens = Post(kCompletions, R"({"prompt":[100]})");
  EXPECT_EQ(Parse(tokens)["error"]["param"], "prompt");
  EXPECT_THAT(tokens.body, HasSubstr("prompt: token id 100"));
  const TestResponse empty = Post(kCompletions, R"({"prompt":[]})");
  EXPECT_EQ(Parse(empty)["error"]["param"], "prompt");
  EXPECT_THAT(empty.body, HasSubstr("set prompt, at least one token"));
  const TestResponse chat = Post("/v1/chat/completions",
                                 R"({"messages":[{"role":"user","content":"a"}],"min_tokens":9,)"
                                 R"("max_completion_tokens":8,"logprobs":true,"top_logprobs":20})");
  EXPECT_THAT(chat.body, HasSubstr("min_tokens = 9 is over max_completion_tokens = 8"));
  const TestResponse top =
      Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}],)"
                                   R"("logprobs":true,"top_logprobs":21})");
  EXPECT_EQ(Parse(top)["error"]["param"], "top_logprobs");
  const TestResponse no_template =
      Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}]})");
  EXPECT_EQ(Parse(no_template)["error"]["param"], "messages");
  EXPECT_THAT(no_template.body, HasSubstr("send a prompt to /v1/completions"));
}

TEST_F(DoorTest, ADrainingServerSaysSo) {
  scheduler_->StopAdmission();
  const TestResponse refused = Post(kCompletions, Completion(R"("max_tokens":4)"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.Header("Retry-After"), "1");
}

TEST_F(DoorTest, AFailureAfterTheBeginningIsAnEvent) {
  engine_.pace = milliseconds(1);
  TestHttpClient client = StartEndless();
  std::string seen;
  while (seen.find("data: ") == std::string::npos) seen += client.Receive();
  engine_.fails = true;
  while (seen.find("\r\n0\r\n\r\n") == std::string::npos) {
    const std::string piece = client.Receive();
    ASSERT_NE(piece, "") << seen;
    seen += piece;
  }
  EXPECT_THAT(seen, HasSubstr(R"(data: {"error":{"message":"no luck")"));
  EXPECT_THAT(seen, testing::Not(HasSubstr("[DONE]")));
}

TEST_F(DoorTest, AFailureBeforeTheBeginningIsAStatus) {
  engine_.fails = true;
  for (const char* const stream : {"true", "false"}) {
    const TestResponse failed =
        Post(kCompletions, Completion(std::string(R"("max_tokens":4,"stream":)") + stream));
    EXPECT_EQ(failed.status, 500);
    EXPECT_EQ(Parse(failed)["error"]["type"], "server_error");
  }
}

TEST_F(DoorTest, AVanishedClientCancelsItsRequest) {
  engine_.pace = milliseconds(1);
  for (const bool stream : {true, false}) {
    { const TestHttpClient client = StartEndless(stream); }
    EXPECT_TRUE(Eventually([&] { return metrics_.requests_running.value() == 0; })) << stream;
  }
  EXPECT_EQ(Count(Outcome::kCancelled), 2u);
}

// Before it has a token that could not be written.
TEST_F(DoorTest, AClientThatLeavesTheQueueIsForgotten) {
  engine_.pace = milliseconds(1);
  std::vector<TestHttpClient> running;
  for (uint32_t i = 0; i < kSlots; ++i) running.push_back(StartEndless(false));
  {
    const std::string body = Completion(R"("max_tokens":4)");
    TestHttpClient waiting(http_->port());
    waiting.Send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " +
                 std::to_string(body.size()) + "\r\n\r\n" + body);
    ASSERT_TRUE(Eventually([&] { return metrics_.requests_waiting.value() == 1; }));
  }
  EXPECT_TRUE(Eventually([&] { return metrics_.requests_waiting.value() == 0; }));
}

TEST_F(DoorTest, AHalfClosedClientGetsItsReply) {
  engine_.pace = milliseconds(20);
  TestHttpClient client(http_->port());
  const std::string body = Completion(R"("max_tokens":20)");
  client.Send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  client.HalfClose();
  EXPECT_EQ(client.ReadResponse().status, 200);
  EXPECT_EQ(Count(Outcome::kLength), 1u);
}

// It fills its connection and its outbox, then its row is left out; others go on.
TEST_F(DoorTest, ASlowReaderStallsItselfAlone) {
  TestHttpClient slow(http_->port());
  slow.SetReceiveBuffer(128 << 10);
  const std::string body = Completion(R"("max_tokens":1000000,"stream":true)");
  slow.Send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " +
            std::to_string(body.size()) + "\r\n\r\n" + body);
  uint64_t before = 0;
  ASSERT_TRUE(Eventually([&] {
    const uint64_t now = metrics_.generation_tokens.value();
    std::this_thread::sleep_for(milliseconds(100));
    return now > 0 && now == std::exchange(before, now);
  })) << before;
  EXPECT_EQ(metrics_.requests_running.value(), 1);
  EXPECT_EQ(Post(kCompletions, Completion(R"("max_tokens":50)")).status, 200);
  for (int i = 0; i < 1000; ++i) ASSERT_NE(slow.Receive(), "");  // and it goes on
  EXPECT_GT(metrics_.generation_tokens.value(), before + 50);
}

class StalledDoorTest : public DoorTest {
 protected:
  StalledDoorTest() : DoorTest(milliseconds(200)) {}
};

TEST_F(StalledDoorTest, AClientThatDoesNotReadIsCutOff) {
  testing::internal::CaptureStderr();
  TestHttpClient slow = StartEndless();
  EXPECT_TRUE(Eventually([&] { return metrics_.requests_running.value() == 0; }));
  EXPECT_EQ(Count(Outcome::kStalled), 1u);
  EXPECT_EQ(calls_.WaitForNone(Clock::now() + seconds(20)), 0);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("the client did not read for"));
}

// Here the connection notices it, before the outbox has been full for too long.
class StalledConnectionTest : public DoorTest {
 protected:
  StalledConnectionTest() : DoorTest(seconds(300), {.write_time = milliseconds(200)}) {}
};

TEST_F(StalledConnectionTest, TheLogSaysThatTheClientDidNotRead) {
  for (const char* const prompt : {"\"abc\"", "[\"abc\",\"b\"]"}) {
    testing::internal::CaptureStderr();
    TestHttpClient slow(http_->port());
    const std::string body =
        std::string(R"({"ignore_eos":true,"max_tokens":1000000,"stream":true,)") +
        "\"prompt\":" + prompt + "}";
    slow.Send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
    EXPECT_TRUE(Eventually([&] { return metrics_.requests_running.value() > 0; }));
    EXPECT_TRUE(Eventually([&] { return metrics_.requests_running.value() == 0; }));
    EXPECT_EQ(calls_.WaitForNone(Clock::now() + seconds(20)), 0);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_THAT(log, HasSubstr("the client did not read for"));
    EXPECT_THAT(log, Not(HasSubstr("cancelled by the client")));
  }
  EXPECT_EQ(Count(Outcome::kStalled), 3u);
  EXPECT_EQ(Count(Outcome::kCancelled), 0u);
}

TEST_F(DoorTest, WhatIsNotServedIsRefused) {
  for (const char* const path : {"/v1/embeddings", "/v1/images/generations", "/v1/files"}) {
    const TestResponse refused = Post(path, "{}");
    EXPECT_EQ(refused.status, 501) << path;
    EXPECT_THAT(refused.body, HasSubstr(path));
  }
  EXPECT_EQ(Post("/v1/nothing", "{}").status, 404);
  EXPECT_EQ(TestHttpClient(http_->port()).Get(kCompletions).status, 405);
  EXPECT_EQ(Post(kCompletions, std::string(100'000, '[')).status, 400);
  EXPECT_EQ(Post(kCompletions, "{\"prompt\":\"\xff\"}").status, 400);
  const TestResponse large = Post(kCompletions, std::string((32 << 20) + 1, ' '));
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(Parse(large)["error"]["type"], "invalid_request_error");
}

TEST_F(DoorTest, ItsEndCutsWhatRuns) {
  TestHttpClient client = StartEndless();
  scheduler_->AbortAll(absl::UnavailableError("the server is shutting down"));
  door_ = nullptr;
  EXPECT_EQ(calls_.WaitForNone(Clock::now()), 0);
  EXPECT_EQ(Post(kCompletions, Completion(R"("max_tokens":4)")).status, 503);
  door_ = std::make_unique<Door>(*http_, std::vector<HttpRoute>(), *context_);
}

}  // namespace
}  // namespace rivulet::openai
