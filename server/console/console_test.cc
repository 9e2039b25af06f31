// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The console's files over real sockets. What they do in a browser is tested by tests/e2e/console.
#include "server/console/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "server/console/console_files.h"
#include "server/http/http_server.h"
#include "server/http/testing.h"
#include "server/metrics/metrics.h"

namespace rivulet {
namespace {

using testing::HasSubstr;
using testing::Not;

class ConsoleTest : public testing::Test {
 protected:
  ConsoleTest() {
    auto http = HttpServer::Start("127.0.0.1", 0, {ConsoleRoutes(), nullptr}, metrics_);
    EXPECT_TRUE(http.ok()) << http.status();
    http_ = *std::move(http);
  }
  TestHttpClient Client() { return TestHttpClient(http_->port()); }

  Metrics metrics_;
  std::unique_ptr<HttpServer> http_;
};

TEST_F(ConsoleTest, ThePageIsServedWithItsFiles) {
  const TestResponse page = Client().Get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.Header("Content-Type"), "text/html; charset=utf-8");
  size_t bytes = 0;
  for (const ConsoleFile& file : ConsoleFiles()) {
    bytes += file.bytes.size();
    if (file.name == "index.html") continue;
    const std::string path = "console/" + std::string(file.name);
    EXPECT_THAT(page.body, HasSubstr(path)) << "the page does not load it at once";
    const TestResponse got = Client().Get("/" + path);
    EXPECT_EQ(got.status, 200) << path;
    EXPECT_EQ(got.body, file.bytes) << path;
  }
  EXPECT_LT(bytes, 110'000u);
}

TEST_F(ConsoleTest, TypesFitTheFiles) {
  EXPECT_EQ(Client().Get("/console/app.js").Header("Content-Type"),
            "text/javascript; charset=utf-8");
  EXPECT_EQ(Client().Get("/console/style.css").Header("Content-Type"), "text/css; charset=utf-8");
  EXPECT_EQ(Client().Get("/console/icon.svg").Header("Content-Type"), "image/svg+xml");
}

TEST_F(ConsoleTest, NothingElseMayRun) {
  const TestResponse page = Client().Get("/");
  const std::string policy = page.Header("Content-Security-Policy");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, HasSubstr("script-src 'self'"));
  EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  EXPECT_EQ(page.Header("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(page.Header("Referrer-Policy"), "no-referrer");
  for (const ConsoleFile& file : ConsoleFiles()) {
    const std::string text(file.bytes);
    EXPECT_THAT(text, Not(HasSubstr("innerHTML"))) << file.name;
    EXPECT_THAT(text, Not(HasSubstr("https://"))) << file.name;
  }
}

TEST_F(ConsoleTest, WhatIsKnownIsNotSentAgain) {
  const std::string etag = Client().Get("/console/app.js").Header("ETag");
  ASSERT_EQ(etag.size(), 20u);
  for (const std::string& known : {etag, etag.substr(2), "\"x\", " + etag, std::string("*")}) {
    TestHttpClient client = Client();
    const TestResponse same = client.Get("/console/app.js", {{"If-None-Match", known}});
    EXPECT_EQ(same.status, 304) << known;
    EXPECT_EQ(same.body, "");
    EXPECT_EQ(same.Header("Content-Length"), "");
    EXPECT_EQ(same.Header("ETag"), etag);
    EXPECT_EQ(client.Get("/").status, 200) << "on the same connection";
  }
  EXPECT_EQ(Client().Get("/console/app.js", {{"If-None-Match", "\"x\""}}).status, 200);
}

TEST_F(ConsoleTest, FilesArePackedIfTheClientAccepts) {
  size_t bytes = 0;
  for (const ConsoleFile& file : ConsoleFiles()) {
    const std::string path = file.name == "index.html" ? "/" : "/console/" + std::string(file.name);
    const TestResponse packed = Client().Get(path, {{"Accept-Encoding", "gzip, br"}});
    EXPECT_EQ(packed.Header("Content-Encoding"), "gzip");
    EXPECT_EQ(packed.Header("Vary"), "Accept-Encoding");
    EXPECT_EQ(Gunzip(packed.body), file.bytes) << path;
    bytes += packed.body.size();
  }
  EXPECT_LT(bytes, 50'000u);
}

TEST_F(ConsoleTest, HeadIsAnsweredAndNothingElse) {
  TestHttpClient client = Client();
  client.Send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
  const TestResponse head = client.ReadResponse(/*to_head=*/true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.Header("Content-Length"), std::to_string(client.Get("/").body.size()));
  EXPECT_EQ(Client().Request("POST", "/", "x").status, 405);
  for (const char* const path : {"/index.html", "/console/", "/console/index.html", "/console",
                                 "/console/../etc/passwd", "/console/%61pp.js", "//"}) {
    EXPECT_EQ(Client().Get(path).status, 404) << path;
  }
}

}  // namespace
}  // namespace rivulet
