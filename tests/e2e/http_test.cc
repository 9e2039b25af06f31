// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The HTTP port of the real server under clients that behave badly, by raw sockets: many streams at
// once, slow readers, pipelining, half-closed connections, ambiguous and malformed requests. What
// the official client sees is in openai/client_test.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "server/http/testing.h"
#include "tests/e2e/server_process.h"

namespace rivulet::e2e {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int kStreams = 1000;

std::string Post(const std::string& body) {
  return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string Complete(uint32_t tokens, bool stream) {
  return Post(R"({"prompt":"Once upon a time","ignore_eos":true,"seed":1,"max_tokens":)" +
              std::to_string(tokens) + R"(,"stream":)" + (stream ? "true" : "false") + "}");
}

class HttpTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    rlimit limit;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    auto server = ServerProcess::Start(
        SourcePath("models/tales"), {"--max-queue=2000", "--log-level=warning", "--speculate=off"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  static void TearDownTestSuite() {
    EXPECT_EQ(server_->Stop().code, 0);
    server_.reset();
  }

  static TestHttpClient Connect() { return TestHttpClient(server_->http_address()); }
  static double Metric(const std::string& name) {
    return e2e::Metric(HttpGet(server_->http_address(), "/metrics").body, name);
  }
  // Threads, or resident KiB, of the server.
  static int64_t Status(const std::string& name) {
    std::ifstream file("/proc/" + std::to_string(server_->process().pid()) + "/status");
    for (std::string line; std::getline(file, line);) {
      if (line.rfind(name + ":", 0) == 0) return std::stoll(line.substr(name.size() + 1));
    }
    return -1;
  }
  template <typename Done>
  static bool Eventually(const Done& done) {
    for (int i = 0; i < 1000; ++i) {
      if (done()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }
  static void ExpectWellAndIdle() {
    EXPECT_EQ(Connect().Get("/healthz").status, 200);
    EXPECT_TRUE(Eventually([] { return Metric("rivulet_requests_running") == 0; }));
  }

  static inline std::unique_ptr<ServerProcess> server_;
};

// All are open at once, and idle afterwards.
TEST_F(HttpTest, AThousandStreams) {
  EXPECT_EQ(Connect().Get("/readyz").status, 200);
  const int64_t threads = Status("Threads");
  const int64_t memory = Status("VmRSS");
  std::vector<TestHttpClient> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(Connect());
    ASSERT_TRUE(clients.back().Send(Complete(3, true)));
  }
  for (TestHttpClient& client : clients) {
    const TestResponse response = client.ReadResponse();
    ASSERT_EQ(response.status, 200) << response.body;
    ASSERT_THAT(response.body, testing::EndsWith("data: [DONE]\n\n"));
  }
  EXPECT_GE(Metric("rivulet_http_connections"), kStreams);
  EXPECT_EQ(Status("Threads"), threads);
  std::printf("%d streams: %lld KiB more, states of the prefix cache included; %lld threads\n",
              kStreams, static_cast<long long>(Status("VmRSS") - memory),
              static_cast<long long>(threads));
  clients.clear();
  EXPECT_TRUE(Eventually([] { return Metric("rivulet_http_connections") <= 2; }));
}

TEST_F(HttpTest, ASlowReaderBesideAFastOne) {
  TestHttpClient slow = Connect();
  slow.SetReceiveBuffer(16 << 10);
  slow.Send(Complete(100'000, true));
  EXPECT_TRUE(Eventually([] { return Metric("rivulet_requests_running") == 1; }));
  const TestResponse fast = [] {
    TestHttpClient client = Connect();
    client.Send(Complete(100, true));
    return client.ReadResponse();
  }();
  EXPECT_EQ(fast.status, 200);
  EXPECT_NE(slow.Receive(), "");
  slow = Connect();  // and it leaves
  ExpectWellAndIdle();
}

TEST_F(HttpTest, PipelinedAndHalfClosed) {
  TestHttpClient client = Connect();
  client.Send(Complete(5, false) + Complete(5, true) +
              "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
  client.HalfClose();
  EXPECT_THAT(client.ReadResponse().body, HasSubstr("text_completion"));
  EXPECT_THAT(client.ReadResponse().body, HasSubstr("[DONE]"));
  EXPECT_THAT(client.ReadResponse().body, HasSubstr("tales"));
  EXPECT_EQ(client.ReceiveAll(), "");
  ExpectWellAndIdle();
}

// Gone in the middle of each part of a request and of its response.
TEST_F(HttpTest, ClientsThatLeaveCostNothing) {
  const auto cancelled = [] { return Metric("rivulet_requests_total{outcome=\"cancelled\"}"); };
  const double before = cancelled();
  const std::string request = Complete(100'000, true);
  for (size_t sent = 1; sent < request.size(); sent += 17) Connect().Send(request.substr(0, sent));
  for (const bool stream : {true, false}) {
    for (int i = 0; i < 10; ++i) Connect().Send(Complete(100'000, stream));
  }
  EXPECT_TRUE(Eventually([&] { return cancelled() == before + 20; })) << cancelled() - before;
  ExpectWellAndIdle();
}

TEST_F(HttpTest, AmbiguousRequestsReachNoHandler) {
  const std::string body = R"({"prompt":"a","max_tokens":1})";
  const std::string line = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n";
  const std::string length = "Content-Length: " + std::to_string(body.size()) + "\r\n";
  const std::string smuggled = "GET /loglevel HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string requests[] = {
      line + length + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
      line + "Content-Length: 0\r\n" + length + "\r\n" + body + smuggled,
      line + length + "Transfer-Encoding: xchunked\r\n\r\n" + body + smuggled,
      line + length + "X: y\r\n folded\r\n\r\n" + body + smuggled,
      line + length + "X: y\n\r\n" + body + smuggled,
      line + "Content-Length : 0\r\n\r\n" + smuggled,
      "POST /v1/completions HTTP/1.1\nHost: localhost\n\n" + smuggled,
  };
  for (const std::string& request : requests) {
    TestHttpClient client = Connect();
    client.Send(request);
    const std::string all = client.ReceiveAll();
    EXPECT_THAT(all, testing::AnyOf(StartsWith("HTTP/1.1 400"), StartsWith("HTTP/1.1 501")));
    EXPECT_EQ(all.find("HTTP/1.1", 1), std::string::npos) << all;  // nothing was smuggled
    EXPECT_THAT(all, HasSubstr("invalid_request_error"));
  }
}

TEST_F(HttpTest, MalformedBodiesAreRefused) {
  const std::string deep(1 << 20, '[');
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("\"x\""), deep,
        R"({"prompt":)" + deep, std::string("{\"prompt\":\"\xff\xfe\"}"),
        std::string("{\"prompt\":\"\\ud800\"}"), std::string("{\"prompt\":\"\xed\xa0\x80\"}"),
        std::string("{\"prompt\":\"a\",\"max_tokens\":1e400}"),
        std::string("{\"prompt\":[999999999]}"), std::string("{\"prompt\":\"a\"}\0", 15)}) {
    TestHttpClient client = Connect();
    client.Send(Post(body));
    const TestResponse response = client.ReadResponse();
    EXPECT_EQ(response.status, 400) << body.substr(0, 60);
    EXPECT_THAT(response.body, HasSubstr("invalid_request_error"));
    EXPECT_EQ(client.Get("/healthz").status, 200);  // the connection goes on
  }
}

TEST_F(HttpTest, LargeHeadsAndBodiesAreRefused) {
  TestHttpClient heads = Connect();
  heads.Send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nA: " + std::string(1 << 20, 'a') +
             "\r\n\r\n");
  EXPECT_EQ(heads.ReadResponse().status, 431);
  TestHttpClient body = Connect();
  body.Send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 33554433\r\n\r\n");
  EXPECT_EQ(body.ReadResponse().status, 413);
  TestHttpClient text = Connect();
  text.Send(Post(R"({"prompt":")" + std::string((4 << 20) + 1, 'a') + "\"}"));
  EXPECT_EQ(text.ReadResponse().status, 400);
  ExpectWellAndIdle();
}

}  // namespace
}  // namespace rivulet::e2e
