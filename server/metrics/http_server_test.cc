// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/metrics/http_server.h"

#include <atomic>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "httplib.h"

namespace rivulet {
namespace {

TEST(HttpServerTest, ServesMetricsAndProbes) {
  std::atomic<bool> ready{true};
  auto server = HttpServer::Start(
      "127.0.0.1", 0, {[] { return std::string("numbers 1\n"); }, [&] { return ready.load(); }});
  ASSERT_TRUE(server.ok()) << server.status();
  httplib::Client client("127.0.0.1", (*server)->port());
  EXPECT_EQ(client.Get("/metrics")->body, "numbers 1\n");
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  EXPECT_EQ(client.Get("/readyz")->status, 200);
  ready = false;
  EXPECT_EQ(client.Get("/readyz")->status, 503);
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  EXPECT_EQ(client.Get("/else")->status, 404);
}

TEST(HttpServerTest, TakenPortIsAnErrorThatNamesIt) {
  const HttpHandlers handlers = {[] { return std::string(); }, [] { return true; }};
  auto first = HttpServer::Start("127.0.0.1", 0, handlers);
  ASSERT_TRUE(first.ok()) << first.status();
  const int port = (*first)->port();
  auto second = HttpServer::Start("127.0.0.1", port, handlers);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), testing::HasSubstr(std::to_string(port)));
  EXPECT_THAT(std::string(second.status().message()), testing::HasSubstr("--http"));
}

}  // namespace
}  // namespace rivulet
