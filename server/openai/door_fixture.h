// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// For tests of the OpenAI API: the door over real sockets, with FakeEngine behind it.
#ifndef RIVULET_SERVER_OPENAI_DOOR_FIXTURE_H_
#define RIVULET_SERVER_OPENAI_DOOR_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/http/http_server.h"
#include "server/http/testing.h"
#include "server/openai/door.h"
#include "server/openai/json_body.h"
#include "server/service/service_fixture.h"

namespace rivulet::openai {

inline constexpr const char* kCompletions = "/v1/completions";

class DoorTest : public ServiceStack {
 protected:
  explicit DoorTest(Clock::duration stall_limit = seconds(300), const HttpLimits& limits = {})
      : ServiceStack(stall_limit) {
    auto http =
        HttpServer::Start("127.0.0.1", 0, RoutesWhileLoading({}, authenticator_), metrics_, limits);
    EXPECT_TRUE(http.ok()) << http.status();
    http_ = *std::move(http);
    door_ = std::make_unique<Door>(*http_, std::vector<HttpRoute>(), *context_);
  }
  ~DoorTest() override {
    scheduler_->AbortAll(absl::UnavailableError("test ends"));
    door_ = nullptr;
    http_ = nullptr;
  }

  TestResponse Post(const std::string& path, const std::string& body,
                    const std::vector<HttpHeader>& headers = {}) {
    return TestHttpClient(http_->port()).Request("POST", path, body, headers);
  }
  static std::string Completion(const std::string& fields) {
    return R"({"prompt":"abc","ignore_eos":true,)" + fields + "}";
  }
  static Json Parse(const TestResponse& response) {
    const auto json = ParseJson(response.body);
    EXPECT_TRUE(json.ok()) << response.body;
    return json.value_or(Json());
  }
  // A request that runs until the test ends it; the client stays connected.
  TestHttpClient StartEndless(bool stream = true) {
    const uint32_t before = static_cast<uint32_t>(metrics_.requests_running.value());
    TestHttpClient client(http_->port());
    const std::string body =
        Completion(std::string(R"("max_tokens":1000000,"stream":)") + (stream ? "true" : "false"));
    client.Send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    EXPECT_TRUE(Eventually([&] {
      return metrics_.requests_running.value() > before && metrics_.requests_waiting.value() == 0;
    }));
    return client;
  }

  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<Door> door_;
};

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_DOOR_FIXTURE_H_
