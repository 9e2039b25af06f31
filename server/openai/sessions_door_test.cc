// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// /v1/sessions over real sockets, with FakeEngine behind it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/http/testing.h"
#include "server/openai/door_fixture.h"
#include "server/openai/json_body.h"

namespace rivulet::openai {
namespace {

using testing::HasSubstr;

class SessionsDoorTest : public DoorTest {
 protected:
  TestResponse Send(const std::string& method, const std::string& path,
                    const std::string& body = "") {
    return TestHttpClient(http_->port()).Request(method, path, body);
  }
  Json Call(const std::string& method, const std::string& path, const std::string& body = "") {
    const TestResponse response = Send(method, path, body);
    EXPECT_EQ(response.status, 200) << path << " " << response.body;
    EXPECT_EQ(response.Header("Content-Type"), "application/json");
    return Parse(response);
  }
  // A turn of three tokens and four generated ones.
  void Turn(const std::string& id) {
    const TestResponse turn = TestHttpClient(http_->port())
                                  .Request("POST", "/v1/completions",
                                           R"({"prompt":"abc","ignore_eos":true,"max_tokens":4})",
                                           {{"x-session-id", id}});
    ASSERT_EQ(turn.status, 200) << turn.body;
    ASSERT_TRUE(WaitUntilIdle());
  }
  void ExpectError(const TestResponse& response, int status, const Json& code, const Json& param) {
    EXPECT_EQ(response.status, status) << response.body;
    const Json error = Parse(response)["error"];
    EXPECT_EQ(error["code"], code) << response.body;
    EXPECT_EQ(error["param"], param) << response.body;
  }
};

TEST_F(SessionsDoorTest, ASessionLivesAndIsDeleted) {
  const Json made = Call("POST", "/v1/sessions", R"({"id":"a","name":"A \"name\""})");
  EXPECT_EQ(made["id"], "a");
  EXPECT_EQ(made["position"], "0");
  EXPECT_EQ(made["busy"], false);
  Turn("a");
  const Json after = Call("GET", "/v1/sessions/a");
  EXPECT_EQ(after["position"], "7");
  EXPECT_EQ(after["name"], "A \"name\"");
  EXPECT_EQ(after["kept_positions"], Json::array({"0"}));
  EXPECT_EQ(Call("PATCH", "/v1/sessions/a", R"({"name":"B"})")["name"], "B");
  EXPECT_EQ(Call("PATCH", "/v1/sessions/a", "{}")["name"], "B");
  EXPECT_EQ(Call("DELETE", "/v1/sessions/a"), Json::object());
  ExpectError(Send("GET", "/v1/sessions/a"), 404, "session_not_found", nullptr);
}

TEST_F(SessionsDoorTest, AnIdIsMadeWhereNoneIsGiven) {
  const std::string id = Call("POST", "/v1/sessions")["id"];
  EXPECT_EQ(id.size(), 16u);
  EXPECT_TRUE(sessions_.Get(id).ok());
}

TEST_F(SessionsDoorTest, ForksAndRewinds) {
  (void)Call("POST", "/v1/sessions", R"({"id":"a:1"})");
  Turn("a:1");
  Turn("a:1");
  const Json fork =
      Call("POST", "/v1/sessions/a%3A1/fork", R"({"new_id":"b","name":"n","position":"7"})");
  EXPECT_EQ(fork["id"], "b");
  EXPECT_EQ(fork["position"], "7");
  EXPECT_EQ(fork["forked_from"], "a:1");
  EXPECT_EQ(fork["forked_at"], "7");
  EXPECT_EQ(Call("POST", "/v1/sessions/a:1/fork")["position"], "14");
  EXPECT_EQ(Call("POST", "/v1/sessions/a:1/rewind", R"({"position":7})")["position"], "7");
  EXPECT_EQ(Call("POST", "/v1/sessions/a:1/rewind", R"({"position":"0"})")["position"], "0");
}

TEST_F(SessionsDoorTest, PagesOfAListFollowEachOther) {
  for (const char* const id : {"a", "b", "c"}) {
    (void)Call("POST", "/v1/sessions", std::string(R"({"id":")") + id + "\"}");
  }
  const Json first = Call("GET", "/v1/sessions?page_size=2");
  EXPECT_EQ(first["sessions"].size(), 2u);
  EXPECT_EQ(first["next_page_token"], "b");
  const Json rest = Call("GET", "/v1/sessions?page_size=2&page_token=b");
  ASSERT_EQ(rest["sessions"].size(), 1u);
  EXPECT_EQ(rest["sessions"][0]["id"], "c");
  EXPECT_EQ(rest["next_page_token"], "");
  EXPECT_EQ(Call("GET", "/v1/sessions")["sessions"].size(), 3u);
}

TEST_F(SessionsDoorTest, HeadAnswersWithoutABody) {
  (void)Call("POST", "/v1/sessions", R"({"id":"a"})");
  TestHttpClient client(http_->port());
  client.Send("HEAD /v1/sessions/a HTTP/1.1\r\nHost: h\r\n\r\n");
  const TestResponse head = client.ReadResponse(/*to_head=*/true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(client.Get("/v1/sessions/a").status, 200);
}

TEST_F(SessionsDoorTest, WrongValuesAreRefusedByName) {
  (void)Call("POST", "/v1/sessions", R"({"id":"a"})");
  Turn("a");
  const std::string sessions = "/v1/sessions", fork = "/v1/sessions/a/fork",
                    rewind = "/v1/sessions/a/rewind";
  for (const char* const body : {"[]", "{", "{\"id\":\"\xff\"}", "1"}) {
    ExpectError(Send("POST", sessions, body), 400, nullptr, nullptr);
  }
  ExpectError(Send("POST", sessions, std::string(16'000, '[')), 400, nullptr, nullptr);
  ExpectError(Send("POST", sessions, R"({"id":"a b"})"), 400, nullptr, "id");
  ExpectError(Send("POST", sessions, R"({"id":")" + std::string(129, 'x') + "\"}"), 400, nullptr,
              "id");
  const std::string long_name = R"({"name":")" + std::string(257, 'x') + "\"}";
  for (const std::string& path : {sessions, fork}) {
    ExpectError(Send("POST", path, long_name), 400, nullptr, "name");
  }
  ExpectError(Send("PATCH", sessions + "/a", long_name), 400, nullptr, "name");
  ExpectError(Send("POST", sessions, R"({"id":7})"), 400, nullptr, "id");
  ExpectError(Send("POST", sessions, R"({"nmae":"x"})"), 400, "unknown_parameter", "nmae");
  ExpectError(Send("POST", sessions, R"({"id":"a"})"), 409, "already_exists", "id");
  ExpectError(Send("GET", sessions + "?page_size=x"), 400, nullptr, "page_size");
  ExpectError(Send("GET", sessions + "?page_size=1001"), 400, nullptr, "page_size");
  ExpectError(Send("POST", fork, R"({"position":99})"), 400, "out_of_range", "position");
  ExpectError(Send("POST", fork, R"({"position":-1})"), 400, nullptr, "position");
  ExpectError(Send("POST", fork, R"({"position":"1e3"})"), 400, nullptr, "position");
  ExpectError(Send("POST", fork, R"({"new_id":"a"})"), 409, "already_exists", "new_id");
  ExpectError(Send("POST", fork, R"({"new_id":"a b"})"), 400, nullptr, "new_id");
  ExpectError(Send("POST", rewind, "{}"), 400, nullptr, "position");
  ExpectError(Send("POST", rewind, R"({"position":8})"), 400, "out_of_range", "position");
  EXPECT_EQ(sessions_.List("", 10).size(), 1u);
}

TEST_F(SessionsDoorTest, SessionsThatDoNotExistAreMissing) {
  for (const std::string path : {"/v1/sessions/x", "/v1/sessions/%79"}) {
    ExpectError(Send("GET", path), 404, "session_not_found", nullptr);
    ExpectError(Send("DELETE", path), 404, "session_not_found", nullptr);
    ExpectError(Send("POST", path + "/fork"), 404, "session_not_found", nullptr);
    ExpectError(Send("POST", path + "/rewind", R"({"position":0})"), 404, "session_not_found",
                nullptr);
  }
  for (const std::string& id : {std::string("%ff"), std::string("%"), std::string(4000, 'y')}) {
    ExpectError(Send("GET", "/v1/sessions/" + id), 400, nullptr, nullptr);
  }
}

TEST_F(SessionsDoorTest, OtherMethodsAndPathsAreRefused) {
  const TestResponse put = Send("PUT", "/v1/sessions");
  EXPECT_EQ(put.status, 405);
  EXPECT_EQ(put.Header("Allow"), "GET, POST");
  const TestResponse post = Send("POST", "/v1/sessions/a");
  EXPECT_EQ(post.status, 405);
  EXPECT_EQ(post.Header("Allow"), "GET, PATCH, DELETE");
  EXPECT_EQ(Send("GET", "/v1/sessions/a/fork").status, 405);
  for (const char* const path : {"/v1/sessions/", "/v1/sessions/a/", "/v1/sessions//fork",
                                 "/v1/sessions/a/fork/b", "/v1/sessions/a/spoon"}) {
    EXPECT_EQ(Send("POST", path, "{}").status, 404) << path;
  }
  EXPECT_EQ(Send("POST", "/v1/sessions", std::string(20'000, ' ')).status, 413);
}

TEST_F(SessionsDoorTest, ABusySessionSaysWhenToRetry) {
  (void)Call("POST", "/v1/sessions", R"({"id":"a"})");
  const auto lease = sessions_.LeaseForTurn("a");
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(Call("GET", "/v1/sessions/a")["busy"], true);
  const TestResponse refused[] = {Send("DELETE", "/v1/sessions/a"),
                                  Send("POST", "/v1/sessions/a/fork"),
                                  Send("POST", "/v1/sessions/a/rewind", R"({"position":0})")};
  for (const TestResponse& response : refused) {
    ExpectError(response, 409, "session_busy", nullptr);
    EXPECT_EQ(response.Header("retry-after-ms"), "100");
  }
}

TEST_F(SessionsDoorTest, ADrainingServerMakesNoSessions) {
  (void)Call("POST", "/v1/sessions", R"({"id":"a"})");
  scheduler_->StopAdmission();
  ExpectError(Send("POST", "/v1/sessions"), 503, "unavailable", nullptr);
  ExpectError(Send("POST", "/v1/sessions/a/fork"), 503, "unavailable", nullptr);
  EXPECT_EQ(Call("GET", "/v1/sessions/a")["id"], "a");
  EXPECT_EQ(Call("DELETE", "/v1/sessions/a"), Json::object());
}

TEST_F(SessionsDoorTest, CallsEndWithTheDoor) {
  (void)Call("POST", "/v1/sessions", R"({"id":"a"})");
  door_ = nullptr;
  EXPECT_EQ(calls_.WaitForNone(Clock::now()), 0);
  EXPECT_THAT(Send("GET", "/v1/sessions/a").body, HasSubstr("unavailable"));
  door_ = std::make_unique<Door>(*http_, std::vector<HttpRoute>(), *context_);
}

}  // namespace
}  // namespace rivulet::openai
