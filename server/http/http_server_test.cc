// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/http/http_server.h"

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/mutex.h"
#include "kernels/base/test_directory.h"
#include "server/http/operations.h"
#include "server/http/testing.h"
#include "server/log/log.h"
#include "server/metrics/metrics.h"
#include "server/security/test_certificates.h"
#include "server/security/tls_identity.h"

namespace rivulet {
namespace {

using testing::HasSubstr;

const OperationsHandlers kHandlers = {[] { return std::string(1000, 'm'); }, [] { return true; },
                                      [] { return true; }};

Metrics& TestMetrics() {
  static Metrics metrics;
  return metrics;
}

HttpRoutes Operations() { return {OperationsRoutes(kHandlers), nullptr}; }

// Every test runs in plain text and over TLS.
class HttpServerTest : public testing::TestWithParam<bool> {
 protected:
  HttpServerTest() {
    if (!GetParam()) return;
    const CertificateAndKey own = MakeCertificate({.issuer = &authority_});
    const std::string directory = TestDirectory();
    WriteFile(directory + "/tls.crt", own.certificate);
    WriteFile(directory + "/tls.key", own.key);
    identity_ = *TlsIdentity::FromFiles({directory + "/tls.crt", directory + "/tls.key", ""});
    tls_ = {.authority = authority_.certificate, .certificate = ""};
  }
  std::unique_ptr<HttpServer> StartServer(HttpRoutes routes = Operations(),
                                          HttpLimits limits = {}) {
    auto server = HttpServer::Start("127.0.0.1", 0, std::move(routes), TestMetrics(), limits,
                                    identity_.get());
    EXPECT_TRUE(server.ok()) << server.status();
    return server.ok() ? *std::move(server) : nullptr;
  }
  TestHttpClient Connect(const HttpServer& server) {
    return TestHttpClient(server.port(), GetParam() ? &tls_ : nullptr);
  }

  const CertificateAndKey authority_ = MakeCertificate({.name = "root", .authority = true});
  std::unique_ptr<TlsIdentity> identity_;
  TestTls tls_;
};
INSTANTIATE_TEST_SUITE_P(Transports, HttpServerTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Tls" : "Plain"; });

// Numbers of the process: threads, or resident KiB.
int64_t StatusLine(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stoll(line.substr(name.size() + 1));
  }
  return -1;
}

void RaiseDescriptorLimit() {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST_P(HttpServerTest, ServesMetricsAndProbes) {
  std::atomic<bool> alive{true}, ready{true};
  auto server =
      StartServer({OperationsRoutes({[] { return std::string("numbers 1\n"); },
                                     [&] { return alive.load(); }, [&] { return ready.load(); }}),
                   nullptr});
  ASSERT_NE(server, nullptr);
  TestHttpClient client = Connect(*server);
  EXPECT_EQ(client.Get("/metrics").body, "numbers 1\n");
  EXPECT_EQ(client.Get("/healthz").status, 200);
  EXPECT_EQ(client.Get("/readyz").status, 200);
  ready = false;
  EXPECT_EQ(client.Get("/readyz").status, 503);
  EXPECT_EQ(client.Get("/healthz").status, 200);
  alive = false;
  EXPECT_EQ(client.Get("/healthz").status, 503);
  EXPECT_EQ(client.Get("/else").status, 404);
}

TEST_P(HttpServerTest, TakenPortIsAnErrorThatNamesIt) {
  auto first = StartServer();
  ASSERT_NE(first, nullptr);
  const int port = first->port();
  auto second = HttpServer::Start("127.0.0.1", port, Operations(), TestMetrics());
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(std::to_string(port)));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("--http"));
}

TEST_P(HttpServerTest, LogLevelIsReadAndChanged) {
  auto server = StartServer();
  ASSERT_NE(server, nullptr);
  TestHttpClient client = Connect(*server);
  EXPECT_EQ(client.Get("/loglevel").body, "info\n");
  testing::internal::CaptureStderr();
  EXPECT_EQ(client.Request("PUT", "/loglevel", "error\n").body, "error\n");
  EXPECT_EQ(LogLevel(), "error");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("log_level_changed from=info to=error client=127.0.0.1"));
  const auto refused = client.Request("PUT", "/loglevel", "loud");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.body, "'loud' is not a log level; send debug, info, warning, error or off\n");
  EXPECT_EQ(LogLevel(), "error");
  // As curl -d sends it.
  const HttpHeader form = {"Content-Type", "application/x-www-form-urlencoded"};
  EXPECT_EQ(client.Request("PUT", "/loglevel", "info", {form}).status, 200);
  EXPECT_EQ(client.Get("/loglevel").body, "info\n");
}

TEST_P(HttpServerTest, BodiesAreSmallAndNeverUnpacked) {
  auto server = StartServer();
  ASSERT_NE(server, nullptr);
  const auto put = [&](const std::string& body, const std::vector<HttpHeader>& headers = {}) {
    return Connect(*server).Request("PUT", "/loglevel", body, headers).status;
  };
  EXPECT_EQ(put(std::string(1025, 'x')), 413);
  EXPECT_EQ(put(std::string(1024, 'x')), 400);
  EXPECT_EQ(put("\x1f\x8b", {{"Content-Encoding", "gzip"}}), 415);
}

// Each of them kept a thread for as long as it liked, and with it the liveness probe waiting.
TEST_P(HttpServerTest, SlowClientsDoNotKeepOutTheProbe) {
  auto server = StartServer();
  ASSERT_NE(server, nullptr);
  std::vector<TestHttpClient> slow;
  for (int i = 0; i < 16; ++i) slow.push_back(Connect(*server));
  for (int i = 0; i < 5; ++i) {
    for (TestHttpClient& client : slow) EXPECT_TRUE(client.Send("G"));
    EXPECT_EQ(Connect(*server).Get("/healthz").status, 200);
  }
}

TEST_P(HttpServerTest, ACrowdOfSilentClientsDoesNotKeepOutTheProbe) {
  RaiseDescriptorLimit();
  HttpLimits limits;
  limits.connections = 1000;
  auto server = StartServer(Operations(), limits);
  ASSERT_NE(server, nullptr);
  TestHttpClient busy = Connect(*server);
  busy.Send("GET /metrics HTTP/1.1\r\nHost: h\r\n");  // and the rest later
  std::vector<TestHttpClient> silent;
  for (int i = 0; i < 1500; ++i) silent.emplace_back(server->port());
  EXPECT_EQ(Connect(*server).Get("/healthz").status, 200);
  EXPECT_LE(TestMetrics().http_connections.value(), 1000);
  EXPECT_FALSE(busy.Send("\r\n") && busy.ReadResponse().status == 200);  // it had waited longest
}

HttpLimits ShortTimes() {
  HttpLimits limits;
  limits.head_time = limits.body_time = limits.idle_time = std::chrono::milliseconds(200);
  return limits;
}

TEST_P(HttpServerTest, ConnectionsThatSayNothingAreClosed) {
  auto server = StartServer(Operations(), ShortTimes());
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(Connect(*server).ReceiveAll(), "");
  TestHttpClient idle = Connect(*server);
  EXPECT_EQ(idle.Get("/healthz").status, 200);
  EXPECT_EQ(idle.ReceiveAll(), "");
  TestHttpClient endless = Connect(*server);
  while (endless.Send("A: " + std::string(1000, 'b') + "\r\n")) {
  }
}

// A byte now and then does not help.
TEST_P(HttpServerTest, SlowHeadsAndBodiesAreRefused) {
  auto server = StartServer(Operations(), ShortTimes());
  ASSERT_NE(server, nullptr);
  for (const char* const begin :
       {"GET /metrics HTTP/1.1\r\nA: ",
        "PUT /loglevel HTTP/1.1\r\nHost: h\r\nContent-Length: 900\r\n\r\n"}) {
    TestHttpClient drip = Connect(*server);
    drip.Send(begin);
    std::atomic<bool> done = false;
    std::thread dripping([&] {
      while (!done && drip.Send("b")) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    });
    EXPECT_EQ(drip.ReadResponse().status, 408) << begin;
    done = true;
    dripping.join();
  }
}

// With a library that matched ranges by recursion, 8000 digits ended the process.
TEST_P(HttpServerTest, RangesAreNotLookedAt) {
  auto server = StartServer();
  ASSERT_NE(server, nullptr);
  std::string many = "0-";
  for (int i = 0; i < 2600; ++i) many += ",0-";
  for (const std::string& range : {std::string(8000, '1') + "-", many}) {
    for (const char* name : {"Range", "rANGE"}) {
      const TestResponse page = Connect(*server).Get("/metrics", {{name, "bytes=" + range}});
      EXPECT_EQ(page.status, 200);
      EXPECT_EQ(page.body, kHandlers.metrics_text());
      EXPECT_EQ(page.Header("Accept-Ranges"), "none");
    }
  }
}

// As Prometheus asks.
TEST_P(HttpServerTest, PageIsCompressedIfTheClientAccepts) {
  auto server = StartServer();
  ASSERT_NE(server, nullptr);
  TestHttpClient client = Connect(*server);
  const std::vector<HttpHeader> headers = {
      {"Accept", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"},
      {"Accept-Encoding", "br, gzip;q=0.9"}};
  const TestResponse page = client.Get("/metrics", headers);
  EXPECT_EQ(page.Header("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(page.Header("Content-Encoding"), "gzip");
  EXPECT_EQ(Gunzip(page.body), kHandlers.metrics_text());
  EXPECT_EQ(client.Get("/metrics", {{"Accept-Encoding", "gzip;q=0"}}).body,
            kHandlers.metrics_text());
  const TestResponse head = client.Request("HEAD", "/metrics");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.Header("Content-Length"), "1000");
  EXPECT_EQ(client.Get("/healthz").body, "ok\n");  // on the same connection still
}

TEST_P(HttpServerTest, UnknownPathsAndMethodsAreRefused) {
  auto server = StartServer();
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(Connect(*server).Get("/metrics/").status, 404);
  EXPECT_EQ(Connect(*server).Get("/loglevel?x=y").status, 200);
  const TestResponse refused = Connect(*server).Request("DELETE", "/loglevel");
  EXPECT_EQ(refused.status, 405);
  EXPECT_EQ(refused.Header("Allow"), "GET, PUT");
}

// Far more than the limit: the client still gets the refusal, not a reset.
TEST_P(HttpServerTest, AMegabyteOfHeadersIsRefusedWithAnAnswer) {
  auto server = StartServer();
  ASSERT_NE(server, nullptr);
  TestHttpClient client = Connect(*server);
  client.Send("GET / HTTP/1.1\r\nHost: h\r\nA: " + std::string(1 << 20, 'b') + "\r\n\r\n");
  EXPECT_EQ(client.ReadResponse().status, 431);
}

TEST_P(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  auto server = StartServer();
  ASSERT_NE(server, nullptr);
  TestHttpClient client = Connect(*server);
  std::string requests;
  for (int i = 0; i < 1000; ++i) {
    requests += std::string("GET ") + (i % 2 == 0 ? "/healthz" : "/readyz") +
                " HTTP/1.1\r\nHost: h\r\n\r\n";
  }
  std::thread sends([&] { EXPECT_TRUE(client.Send(requests)); });
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(client.ReadResponse().body, i % 2 == 0 ? "ok\n" : "ready\n") << i;
  }
  sends.join();
}

TEST_P(HttpServerTest, AHalfClosedClientGetsItsAnswers) {
  auto server = StartServer();
  ASSERT_NE(server, nullptr);
  TestHttpClient client = Connect(*server);
  client.Send("GET /healthz HTTP/1.1\r\nHost: h\r\n\r\nGET /readyz HTTP/1.1\r\nHost: h\r\n\r\nGET");
  client.HalfClose();
  EXPECT_EQ(client.ReadResponse().body, "ok\n");
  EXPECT_EQ(client.ReadResponse().body, "ready\n");
  EXPECT_EQ(client.ReceiveAll(), "");
}

TEST_P(HttpServerTest, ContinueIsSaidBeforeABodyThatWaitsForIt) {
  auto server = StartServer();
  ASSERT_NE(server, nullptr);
  const std::string head =
      "PUT /loglevel HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: ";
  TestHttpClient client = Connect(*server);
  client.Send(head + "4\r\n\r\n");
  EXPECT_EQ(client.Receive(), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("info");
  EXPECT_EQ(client.ReadResponse().status, 200);
  TestHttpClient large = Connect(*server);
  large.Send(head + "4000\r\n\r\n");
  EXPECT_THAT(large.Receive(), testing::StartsWith("HTTP/1.1 413"));
}

TEST_P(HttpServerTest, OldClientsGetUnframedAnswers) {
  auto server = StartServer();
  ASSERT_NE(server, nullptr);
  TestHttpClient client = Connect(*server);
  client.Send("GET /healthz HTTP/1.0\r\n\r\n");
  const std::string all = client.ReceiveAll();
  EXPECT_THAT(all, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(all, testing::EndsWith("ok\n"));
}

TEST_P(HttpServerTest, BodiesAtOneTimeAreBounded) {
  HttpLimits limits;
  limits.all_body_bytes = 1500;
  auto server = StartServer(Operations(), limits);
  ASSERT_NE(server, nullptr);
  const std::string head =
      "PUT /loglevel HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n";
  {
    TestHttpClient first = Connect(*server), second = Connect(*server);
    for (TestHttpClient* const client : {&first, &second}) {
      client->Send(head);
      EXPECT_EQ(client->Receive(), "HTTP/1.1 100 Continue\r\n\r\n");
    }
    first.Send(std::string(1000, ' '));
    second.Send(std::string(1000, ' '));
    const TestResponse refused = second.ReadResponse();
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(refused.Header("Retry-After"), "1");
    first.Send(" ");
    EXPECT_EQ(first.ReadResponse().status, 400);
  }
  EXPECT_EQ(Connect(*server).Request("PUT", "/loglevel", "info").status, 200);
}

// ---- Streams: /stream keeps its exchange for the test.

class StreamTest : public HttpServerTest {
 protected:
  void Start(HttpLimits limits = {}) {
    HttpRoutes routes = Operations();
    routes.routes.push_back(
        {"POST", "/stream", 100, [this](const std::shared_ptr<HttpExchange>& exchange) {
           exchange->WhenGone([this](bool stalled) {
             ++gone_;
             stalled_ += stalled ? 1 : 0;
           });
           MutexLock lock(&mutex_);
           exchanges_.push_back(exchange);
           came_.NotifyAll();
         }});
    server_ = StartServer(std::move(routes), limits);
    ASSERT_NE(server_, nullptr);
  }
  ~StreamTest() override { exchanges_.clear(); }

  std::shared_ptr<HttpExchange> Open(TestHttpClient& client, const std::string& version = "1.1") {
    client.Send("POST /stream HTTP/" + version + "\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    MutexLock lock(&mutex_);
    while (exchanges_.empty()) came_.Wait(&mutex_);
    const auto exchange = exchanges_.back();
    exchanges_.pop_back();
    return exchange;
  }
  // Waits for the end of the write.
  static bool Write(const std::shared_ptr<HttpExchange>& exchange, const std::string& bytes) {
    std::promise<bool> done;
    exchange->Write(bytes, [&](bool ok) { done.set_value(ok); });
    return done.get_future().get();
  }
  bool EventuallyGone(int count) {
    for (int i = 0; i < 2000 && gone_ < count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return gone_ == count;
  }

  std::atomic<int> gone_{0};
  std::atomic<int> stalled_{0};  // of these
  Mutex mutex_;
  CondVar came_;
  std::vector<std::shared_ptr<HttpExchange>> exchanges_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<HttpServer> server_;
};
INSTANTIATE_TEST_SUITE_P(Transports, StreamTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Tls" : "Plain"; });

TEST_P(StreamTest, PartsArriveAsTheyAreWritten) {
  Start();
  TestHttpClient client = Connect(*server_);
  auto exchange = Open(client);
  client.Send("GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n");  // waits for the stream's end
  exchange->BeginStream({200, "text/event-stream", {}, ""});
  EXPECT_TRUE(Write(exchange, "data: 1\n\n"));
  EXPECT_THAT(client.Receive(), testing::EndsWith("\r\n\r\n9\r\ndata: 1\n\n\r\n"));
  EXPECT_TRUE(Write(exchange, ""));
  EXPECT_TRUE(Write(exchange, "data: 2\n\n"));
  EXPECT_EQ(client.Receive(), "9\r\ndata: 2\n\n\r\n");
  exchange->EndStream();
  exchange = nullptr;
  EXPECT_THAT(client.Receive(), testing::StartsWith("0\r\n\r\n"));
  EXPECT_EQ(gone_, 0);
}

TEST_P(StreamTest, AnOldClientGetsAStreamUpToTheEnd) {
  Start();
  TestHttpClient client = Connect(*server_);
  auto exchange = Open(client, "1.0");
  exchange->BeginStream({});
  EXPECT_TRUE(Write(exchange, "abc"));
  exchange->EndStream();
  EXPECT_THAT(client.ReceiveAll(), testing::EndsWith("\r\n\r\nabc"));
}

TEST_P(StreamTest, AVanishedClientEndsItsExchange) {
  Start();
  std::vector<std::shared_ptr<HttpExchange>> exchanges;
  for (const bool begun : {false, true}) {
    TestHttpClient client = Connect(*server_);
    exchanges.push_back(Open(client));
    if (!begun) continue;
    exchanges.back()->BeginStream({});
    EXPECT_TRUE(Write(exchanges.back(), "a"));
    client.Receive();
  }
  // The first is noticed by itself, the second with its next write.
  Write(exchanges[1], "b");
  EXPECT_TRUE(EventuallyGone(2)) << gone_;
  EXPECT_EQ(stalled_, 0);
  EXPECT_FALSE(Write(exchanges[0], "c"));
  EXPECT_FALSE(Write(exchanges[1], "c"));
}

TEST_P(StreamTest, AHalfClosedClientIsNotGone) {
  Start();
  TestHttpClient client = Connect(*server_);
  auto exchange = Open(client);
  client.HalfClose();
  EXPECT_EQ(client.Receive(), "HTTP/1.1 100 Continue\r\n\r\n");  // looks whether it is there
  exchange->Respond({200, "text/plain", {}, "late"});
  EXPECT_EQ(client.ReadResponse().body, "late");
  EXPECT_EQ(client.ReceiveAll(), "");
  EXPECT_EQ(gone_, 0);
}

TEST_P(StreamTest, AnExchangeThatIsDroppedCutsItsConnection) {
  Start();
  TestHttpClient client = Connect(*server_);
  Open(client);
  EXPECT_EQ(client.ReceiveAll(), "");
}

TEST_P(StreamTest, ASlowReaderHoldsUpItselfAlone) {
  HttpLimits limits;
  limits.write_time = std::chrono::milliseconds(700);
  Start(limits);
  TestHttpClient slow = Connect(*server_);
  slow.SetReceiveBuffer(4096);
  auto stuck = Open(slow);
  stuck->BeginStream({});
  std::atomic<bool> written = false;
  std::atomic<bool> ok = true;
  stuck->Write(std::string(8 << 20, 's'), [&](bool fine) {
    ok = fine;
    written = true;
  });
  TestHttpClient fast = Connect(*server_);
  auto exchange = Open(fast);
  exchange->BeginStream({});
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(Write(exchange, "data"));
    ASSERT_NE(fast.Receive(), "");
  }
  EXPECT_FALSE(written);
  EXPECT_TRUE(EventuallyGone(1));  // after write_time without a byte
  EXPECT_EQ(stalled_, 1);
  EXPECT_FALSE(ok);
}

// No thread for each, and little memory.
TEST_P(StreamTest, AThousandIdleStreamsCostLittle) {
  RaiseDescriptorLimit();
  Start();
  const int64_t threads = StatusLine("Threads");
  const int64_t memory = StatusLine("VmRSS");
  std::vector<TestHttpClient> clients;
  std::vector<std::shared_ptr<HttpExchange>> exchanges;
  for (int i = 0; i < 1000; ++i) {
    clients.push_back(Connect(*server_));
    exchanges.push_back(Open(clients.back()));
    exchanges.back()->BeginStream({200, "text/event-stream", {}, ""});
    ASSERT_TRUE(Write(exchanges.back(), "data: begun\n\n"));
  }
  const int64_t used = StatusLine("VmRSS") - memory;
  std::printf("1000 idle streams: %lld KiB, %lld threads more\n", static_cast<long long>(used),
              static_cast<long long>(StatusLine("Threads") - threads));
  EXPECT_EQ(StatusLine("Threads"), threads);
  // The clients' side of TLS is in it, and sanitizers take more than the 1 MiB of a release build.
  EXPECT_LT(used, (GetParam() ? 256 : 64) << 10);
  EXPECT_EQ(Connect(*server_).Get("/healthz").status, 200);
  for (auto& exchange : exchanges) exchange->EndStream();
}

TEST_P(StreamTest, ExchangesMayOutliveTheServer) {
  Start();
  TestHttpClient client = Connect(*server_);
  auto exchange = Open(client);
  exchange->BeginStream({});
  EXPECT_TRUE(Write(exchange, "a"));
  server_ = nullptr;
  EXPECT_EQ(gone_, 1);
  exchange->Write("b", [](bool) { FAIL(); });
  exchange->EndStream();
}

TEST_P(StreamTest, ExchangesAreCutAndRoutesChanged) {
  Start();
  TestHttpClient client = Connect(*server_);
  auto exchange = Open(client);
  server_->SetRoutes(Operations());
  EXPECT_EQ(Connect(*server_).Request("POST", "/stream").status, 404);
  server_->CutExchanges();
  EXPECT_EQ(gone_, 1);
  EXPECT_EQ(client.ReceiveAll(), "");
}

}  // namespace
}  // namespace rivulet
