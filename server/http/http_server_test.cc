// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/http/http_server.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "httplib.h"
#include "server/log/log.h"

namespace rivulet {
namespace {

using testing::HasSubstr;

const HttpHandlers kHandlers = {[] { return std::string(1000, 'm'); }, [] { return true; },
                                [] { return true; }};

std::unique_ptr<HttpServer> StartServer() {
  auto server = HttpServer::Start("127.0.0.1", 0, kHandlers);
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

// A client that sends what and when it likes.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  RawClient(RawClient&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  RawClient& operator=(RawClient&& other) noexcept {
    std::swap(socket_, other.socket_);
    return *this;
  }
  ~RawClient() {
    if (socket_ >= 0) close(socket_);
  }

  // False once the server has closed the connection.
  bool Send(const std::string& text) {
    return send(socket_, text.data(), text.size(), MSG_NOSIGNAL) >= 0;
  }
  // All up to the end of the connection.
  std::string Receive() {
    std::string text;
    char piece[4096];
    for (ssize_t got; (got = recv(socket_, piece, sizeof(piece), 0)) > 0;) {
      text.append(piece, static_cast<size_t>(got));
    }
    return text;
  }

 private:
  int socket_;
};

TEST(HttpServerTest, ServesMetricsAndProbes) {
  std::atomic<bool> alive{true}, ready{true};
  auto server = HttpServer::Start("127.0.0.1", 0,
                                  {[] { return std::string("numbers 1\n"); },
                                   [&] { return alive.load(); }, [&] { return ready.load(); }});
  ASSERT_TRUE(server.ok()) << server.status();
  httplib::Client client("127.0.0.1", (*server)->port());
  EXPECT_EQ(client.Get("/metrics")->body, "numbers 1\n");
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  EXPECT_EQ(client.Get("/readyz")->status, 200);
  ready = false;
  EXPECT_EQ(client.Get("/readyz")->status, 503);
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  alive = false;
  EXPECT_EQ(client.Get("/healthz")->status, 503);
  EXPECT_EQ(client.Get("/else")->status, 404);
}

TEST(HttpServerTest, TakenPortIsAnErrorThatNamesIt) {
  auto first = StartServer();
  ASSERT_NE(first, nullptr);
  const int port = first->port();
  auto second = HttpServer::Start("127.0.0.1", port, kHandlers);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(std::to_string(port)));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("--http"));
}

TEST(HttpServerTest, LogLevelIsReadAndChanged) {
  auto server = StartServer();
  ASSERT_NE(server, nullptr);
  httplib::Client client("127.0.0.1", server->port());
  EXPECT_EQ(client.Get("/loglevel")->body, "info\n");
  testing::internal::CaptureStderr();
  EXPECT_EQ(client.Put("/loglevel", "error\n", "text/plain")->body, "error\n");
  EXPECT_EQ(LogLevel(), "error");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("log_level_changed from=info to=error client=127.0.0.1"));
  const auto refused = client.Put("/loglevel", "loud", "text/plain");
  EXPECT_EQ(refused->status, 400);
  EXPECT_EQ(refused->body, "'loud' is not a log level; send debug, info, warning, error or off\n");
  EXPECT_EQ(LogLevel(), "error");
  // As curl -d sends it.
  EXPECT_EQ(client.Put("/loglevel", "info", "application/x-www-form-urlencoded")->status, 200);
  EXPECT_EQ(client.Get("/loglevel")->body, "info\n");
}

TEST(HttpServerTest, BodiesAreSmallAndNeverUnpacked) {
  auto server = StartServer();
  ASSERT_NE(server, nullptr);
  httplib::Client client("127.0.0.1", server->port());
  EXPECT_EQ(client.Put("/loglevel", std::string(1025, 'x'), "text/plain")->status, 413);
  EXPECT_EQ(client.Put("/loglevel", std::string(1024, 'x'), "text/plain")->status, 400);
  client.set_compress(true);
  EXPECT_EQ(client.Put("/loglevel", "info", "text/plain")->status, 400);
}

// Each of them kept a thread for as long as it liked, and with it the liveness probe waiting.
TEST(HttpServerTest, SlowClientsDoNotKeepOutTheProbe) {
  auto server = StartServer();
  ASSERT_NE(server, nullptr);
  std::vector<RawClient> slow;
  std::atomic<bool> done = false;
  for (int i = 0; i < 16; ++i) slow.emplace_back(server->port());
  std::thread drip([&] {
    for (size_t i = 0; !done; ++i) {
      RawClient& client = slow[i % slow.size()];
      if (!client.Send("G")) client = RawClient(server->port());  // and it comes back for more
      if (i % slow.size() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  for (int i = 0; i < 5; ++i) {
    httplib::Client probe("127.0.0.1", server->port());
    probe.set_read_timeout(10);
    const auto answer = probe.Get("/healthz");
    EXPECT_TRUE(answer && answer->status == 200) << httplib::to_string(answer.error());
  }
  done = true;
  drip.join();
}

// Each of them had 100 ms of a thread: 3000 kept the probe waiting for 22 s and the end for 27 s.
TEST(HttpServerTest, ACrowdOfSilentClientsDoesNotKeepOutTheProbe) {
  auto server = StartServer();
  ASSERT_NE(server, nullptr);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<RawClient> silent;
  for (int i = 0; i < 1500; ++i) silent.emplace_back(server->port());
  httplib::Client probe("127.0.0.1", server->port());
  probe.set_read_timeout(3);
  const auto answer = probe.Get("/healthz");
  EXPECT_TRUE(answer && answer->status == 200) << httplib::to_string(answer.error());
}

TEST(HttpServerTest, ConnectionsThatSayNothingAreClosed) {
  auto server = StartServer();
  ASSERT_NE(server, nullptr);
  RawClient silent(server->port());
  EXPECT_EQ(silent.Receive(), "");
  RawClient endless(server->port());
  while (endless.Send("A: " + std::string(1000, 'b') + "\r\n")) {
  }
}

// With thread stacks of 2 MiB (ulimit -s unlimited) 8000 digits ended the process, and 2600 ranges
// made 27 MB of a small page.
TEST(HttpServerTest, RangesAreNotLookedAt) {
  pthread_attr_t usual, small;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_attr_init(&small), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&small, 512 * 1024), 0);
  ASSERT_EQ(pthread_setattr_default_np(&small), 0);
  auto server = StartServer();
  ASSERT_NE(server, nullptr);
  std::string many = "0-";
  for (int i = 0; i < 2600; ++i) many += ",0-";
  for (const std::string& range : {std::string(8000, '1') + "-", many}) {
    for (const char* name : {"Range", "rANGE"}) {
      RawClient client(server->port());
      client.Send("GET /metrics HTTP/1.1\r\n" + std::string(name) + ": bytes=" + range +
                  "\r\n\r\n");
      const std::string answer = client.Receive();
      EXPECT_THAT(answer, testing::StartsWith("HTTP/1.1 200"));
      EXPECT_THAT(answer, testing::EndsWith(kHandlers.metrics_text()));
      EXPECT_THAT(answer, testing::HasSubstr("Accept-Ranges: none\r\n"));
      EXPECT_LT(answer.size(), 1500u);
    }
  }
  server = nullptr;
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  pthread_attr_destroy(&usual);
  pthread_attr_destroy(&small);
}

// As Prometheus asks.
TEST(HttpServerTest, PageIsCompressedIfTheClientAccepts) {
  auto server = StartServer();
  ASSERT_NE(server, nullptr);
  httplib::Client client("127.0.0.1", server->port());
  const httplib::Headers headers = {
      {"Accept", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"},
      {"Accept-Encoding", "gzip"}};
  const auto answer = client.Get("/metrics", headers);
  EXPECT_EQ(answer->get_header_value("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(answer->get_header_value("Content-Encoding"), "gzip");
  EXPECT_EQ(answer->body, kHandlers.metrics_text());
  EXPECT_EQ(client.Head("/metrics")->status, 200);
}

}  // namespace
}  // namespace rivulet
