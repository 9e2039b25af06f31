// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// TLS, tokens and tenants of the real server, driven by the client library, the command line and
// HTTP, with files that change while it runs.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_directory.h"
#include "server/http/testing.h"
#include "server/security/test_certificates.h"
#include "server/security/test_tokens.h"
#include "tests/e2e/server_process.h"

namespace rivulet::e2e {
namespace {

using testing::HasSubstr;
using testing::Not;

const char kModel[] = "tests/parity/fixtures/hla_masked";
const char kRed[] = "red-token-of-this-test", kBlue[] = "blue-token-of-this-test";
const char kOperator[] = "operator-token-of-this-test";

std::string Entry(const std::string& token, const std::string& tenant,
                  const std::string& more = "") {
  return absl::StrCat(R"({"tenant": ")", tenant, R"(", "sha256": ")", TokenHash(token), "\"", more,
                      "}");
}

// Changes of files reach the server within a moment.
bool Eventually(const std::function<bool()>& done) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

class SecurityTest : public testing::Test {
 protected:
  void SetUp() override {
    Rotate(authority_);
    WriteTokens({Entry(kRed, "red"), Entry(kBlue, "blue"),
                 Entry(kOperator, "red", R"(, "scopes": ["metrics", "admin"])")});
    WriteFile(directory_ + "/ca.crt", authority_.certificate);
  }
  // A new certificate, as an authority signs it.
  void Rotate(const CertificateAndKey& authority) {
    const CertificateAndKey own = MakeCertificate({.issuer = &authority});
    WriteFile(directory_ + "/tls.crt", own.certificate);
    WriteFile(directory_ + "/tls.key", own.key);
  }
  void WriteTokens(const std::vector<std::string>& entries) {
    std::string list;
    for (const std::string& entry : entries) list += (list.empty() ? "" : ", ") + entry;
    WriteFile(directory_ + "/tokens.json",
              R"({"tenants": [{"name": "red"}, {"name": "blue"}], "tokens": [)" + list + "]}");
  }
  void Start(std::vector<std::string> more = {}) {
    more.insert(more.end(),
                {"--tls-cert=" + directory_ + "/tls.crt", "--tls-key=" + directory_ + "/tls.key",
                 "--tokens=" + directory_ + "/tokens.json"});
    auto server = ServerProcess::Start(SourcePath(kModel), more);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  Access AccessOf(const std::string& token, const CertificateAndKey& authority) const {
    return {.tls = true, .authorities = authority.certificate, .token = token};
  }
  absl::Status Describe(const Access& access) {
    return Client(server_->address(), access).GetModel().status();
  }
  TestResponse Http(const std::string& path, const std::string& token,
                    const std::string& method = "GET", const std::string& body = "") {
    const TestTls tls = {.authority = authority_.certificate, .certificate = ""};
    std::vector<HttpHeader> headers;
    if (!token.empty()) headers.push_back({"Authorization", "Bearer " + token});
    return TestHttpClient(server_->http_address(), &tls).Request(method, path, body, headers);
  }
  Exit Cli(const std::string& token, std::vector<std::string> arguments) {
    WriteFile(directory_ + "/token", token + "\n");
    arguments.insert(arguments.begin(), Binary("rivulet"));
    arguments.insert(arguments.end(),
                     {"--server=" + server_->address(), "--tls-ca=" + directory_ + "/ca.crt"});
    if (!token.empty()) arguments.push_back("--token-file=" + directory_ + "/token");
    return RunProgram(arguments);
  }

  const std::string directory_ = TestDirectory();
  const CertificateAndKey authority_ = MakeCertificate({.name = "root", .authority = true});
  const CertificateAndKey next_ = MakeCertificate({.name = "next", .authority = true});
  std::unique_ptr<ServerProcess> server_;
};

TEST_F(SecurityTest, TheCommandLineAndTheLibrarySpeakTlsWithAToken) {
  Start();
  EXPECT_EQ(Describe(AccessOf(kRed, authority_)), absl::OkStatus());
  EXPECT_TRUE(absl::IsUnauthenticated(Describe(AccessOf("", authority_))));
  EXPECT_TRUE(absl::IsUnauthenticated(Describe(AccessOf("guess", authority_))));
  EXPECT_TRUE(absl::IsUnavailable(Describe(AccessOf(kRed, next_))));
  EXPECT_TRUE(absl::IsUnavailable(Describe({.token = kRed})));  // plain text
  const Exit said = Cli(kRed, {"generate", "--tokens=1,2,3", "--max-tokens=4"});
  EXPECT_EQ(said.code, 0) << said.output;
  const Exit refused = Cli("", {"generate", "--tokens=1,2,3", "--max-tokens=4"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.output, HasSubstr("Authorization: Bearer"));
}

TEST_F(SecurityTest, HttpPathsAskForTheirScopes) {
  Start();
  const TestResponse refused = Http("/v1/models", "");
  EXPECT_EQ(refused.status, 401);
  EXPECT_THAT(refused.body, HasSubstr("invalid_api_key"));
  EXPECT_EQ(refused.Header("WWW-Authenticate"), "Bearer");
  EXPECT_EQ(Http("/v1/models", kRed).status, 200);
  EXPECT_EQ(Http("/v1/models", "x").status, 401);
  EXPECT_EQ(Http("/metrics", kRed).status, 403);
  EXPECT_THAT(Http("/metrics", kOperator).body,
              HasSubstr("rivulet_tenant_requests_total{tenant=\"blue\"} 0"));
  EXPECT_EQ(Http("/loglevel", kRed, "PUT", "debug").status, 403);
  EXPECT_EQ(Http("/loglevel", kOperator, "PUT", "debug").status, 200);
  EXPECT_EQ(Http("/v1/models", kOperator).status, 403);
  EXPECT_EQ(Http("/healthz", "").status, 200);
  EXPECT_EQ(Http("/readyz", "").status, 200);
  // Refused before the body is read.
  const TestTls tls = {.authority = authority_.certificate, .certificate = ""};
  TestHttpClient client(server_->http_address(), &tls);
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30000000\r\n\r\n");
  EXPECT_EQ(client.ReadResponse().status, 401);
}

TEST_F(SecurityTest, TenantsDoNotSeeEachOthersSessions) {
  Start();
  EXPECT_EQ(Http("/v1/sessions", kRed, "POST", R"({"id": "mine"})").status, 200);
  EXPECT_EQ(Http("/v1/sessions/mine", kRed).status, 200);
  EXPECT_EQ(Http("/v1/sessions/mine", kBlue).status, 404);
  EXPECT_THAT(Http("/v1/sessions", kBlue).body, Not(HasSubstr("mine")));
  const Exit theirs = Cli(kBlue, {"sessions", "list"});
  EXPECT_EQ(theirs.code, 0) << theirs.output;
  EXPECT_THAT(theirs.output, Not(HasSubstr("mine")));
  EXPECT_THAT(Cli(kRed, {"sessions", "list"}).output, HasSubstr("mine"));
}

TEST_F(SecurityTest, ChangedFilesCountWithoutARestart) {
  Start();
  EXPECT_EQ(Describe(AccessOf(kRed, authority_)), absl::OkStatus());
  WriteTokens({Entry(kBlue, "blue")});
  EXPECT_TRUE(
      Eventually([&] { return absl::IsUnauthenticated(Describe(AccessOf(kRed, authority_))); }));
  EXPECT_EQ(Describe(AccessOf(kBlue, authority_)), absl::OkStatus());
  Rotate(next_);
  EXPECT_TRUE(Eventually([&] { return Describe(AccessOf(kBlue, next_)).ok(); }));
  EXPECT_TRUE(absl::IsUnavailable(Describe(AccessOf(kBlue, authority_))));
  WriteFile(directory_ + "/tokens.json", "{ half a file");
  EXPECT_TRUE(Eventually(
      [&] { return server_->process().output().find("file_not_reloaded") != std::string::npos; }));
  EXPECT_EQ(Describe(AccessOf(kBlue, next_)), absl::OkStatus());
}

TEST_F(SecurityTest, ATenantThatLeavesTheFileLosesItsSessions) {
  const auto write = [&](const std::string& tenants, const std::vector<std::string>& tokens) {
    WriteFile(directory_ + "/tokens.json",
              absl::StrCat("{\"tenants\": [", tenants, "], \"tokens\": [",
                           absl::StrJoin(tokens, ","), "]}"));
  };
  const std::string red = R"({"name": "red"})", both = red + R"(, {"name": "blue"})";
  Start();
  for (const char* const token : {kRed, kBlue}) {
    EXPECT_EQ(Http("/v1/sessions", token, "POST", R"({"id": "mine"})").status, 200);
  }
  write(red, {Entry(kRed, "red")});
  EXPECT_TRUE(Eventually([&] { return Http("/v1/sessions/mine", kBlue).status == 401; }));
  write(both, {Entry(kRed, "red"), Entry(kBlue, "blue")});
  EXPECT_TRUE(Eventually([&] { return Http("/v1/sessions/mine", kBlue).status != 401; }));
  const TestResponse gone = Http("/v1/sessions/mine", kBlue);
  EXPECT_EQ(gone.status, 404);
  EXPECT_THAT(gone.body, HasSubstr("left the server's --tokens file"));
  EXPECT_EQ(Http("/v1/sessions/mine", kRed).status, 200);
  EXPECT_EQ(Http("/v1/sessions", kBlue, "POST", R"({"id": "mine"})").status, 200);
  EXPECT_THAT(server_->process().output(), HasSubstr("reason=tenant_left"));
}

TEST_F(SecurityTest, LogsHaveTenantsAndTracesButNoToken) {
  Start({"--log-level=debug"});
  const TestTls tls = {.authority = authority_.certificate, .certificate = ""};
  const std::string trace = "0af7651916cd43dd8448eb211c80319c";
  TestHttpClient client(server_->http_address(), &tls);
  const std::string body = R"({"prompt": [1, 2, 3], "max_tokens": 2})";
  const TestResponse response =
      client.Request("POST", "/v1/completions", body,
                     {{"Authorization", absl::StrCat("Bearer ", kRed)},
                      {"traceparent", "00-" + trace + "-b7ad6b7169203331-01"},
                      {"Content-Type", "application/json"}});
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(Http("/v1/models", "a-wrong-token").status, 401);
  EXPECT_TRUE(
      Eventually([&] { return server_->process().output().find(trace) != std::string::npos; }));
  const std::string log = server_->process().output();
  EXPECT_THAT(log, HasSubstr("tenant=red trace_id=" + trace));
  for (const std::string& secret : {std::string(kRed), std::string(kBlue), TokenHash(kRed),
                                    std::string("a-wrong-token"), std::string("PRIVATE KEY")}) {
    EXPECT_THAT(log, Not(HasSubstr(secret)));
  }
}

TEST_F(SecurityTest, MutualTlsKeepsOutClientsWithoutACertificate) {
  Start({"--tls-client-ca=" + directory_ + "/ca.crt"});
  EXPECT_TRUE(absl::IsUnavailable(Describe(AccessOf(kRed, authority_))));
  const CertificateAndKey own = MakeCertificate({.name = "client", .issuer = &authority_});
  Access access = AccessOf(kRed, authority_);
  access.certificate = own.certificate;
  access.key = own.key;
  EXPECT_EQ(Describe(access), absl::OkStatus());
  EXPECT_EQ(Http("/healthz", "").status, 0);
}

// On both ports, and again after a reload.
TEST_F(SecurityTest, CertificatesStandForTokens) {
  const auto write = [&](const std::string& tenant) {
    WriteFile(directory_ + "/tokens.json",
              absl::StrCat(R"({"tenants": [{"name": "red"}, {"name": "blue"}], "certificates": [)",
                           R"({"uri": "spiffe://test/a", "tenant": ")", tenant,
                           R"(", "scopes": ["generate", "metrics"]}]})"));
  };
  write("red");
  Start({"--tls-client-ca=" + directory_ + "/ca.crt"});
  const auto metrics = [&](const std::string& uri) {
    const CertificateAndKey own =
        MakeCertificate({.name = "client", .issuer = &authority_, .uri = uri});
    Access access = AccessOf("", authority_);
    access.certificate = own.certificate;
    access.key = own.key;
    EXPECT_EQ(absl::IsUnauthenticated(Describe(access)), uri != "spiffe://test/a");
    const TestTls tls = {
        .authority = authority_.certificate, .certificate = own.certificate, .key = own.key};
    TestHttpClient client(server_->http_address(), &tls);
    const std::string body = R"({"prompt":[1,2,3],"max_tokens":1})";
    if (uri == "spiffe://test/a") {
      EXPECT_EQ(client.Request("POST", "/v1/completions", body).status, 200);
    }
    return client.Get("/metrics");
  };
  EXPECT_EQ(metrics("spiffe://test/b").status, 401);
  EXPECT_THAT(metrics("spiffe://test/a").body,
              HasSubstr("rivulet_tenant_generation_tokens_total{tenant=\"red\"} 1"));
  write("blue");
  EXPECT_TRUE(Eventually([&] {
    return metrics("spiffe://test/a").body.find("tokens_total{tenant=\"blue\"} 1") !=
           std::string::npos;
  }));
}

// The port of this machine, as a browser has it whose site lets its own name point here.
TEST(HostTest, OnLoopbackOnlyItsOwnNamesAreServed) {
  const auto server = ServerProcess::Start(SourcePath(kModel), {"--http-host=gpu.lan,workstation"});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto status = [&](const std::string& path, const std::string& host) {
    TestHttpClient client((*server)->http_address());
    client.Send("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    return client.ReadResponse().status;
  };
  for (const char* const host : {"localhost:80", "127.0.0.1", "gpu.lan:8591", "WORKSTATION"}) {
    EXPECT_EQ(status("/v1/models", host), 200) << host;
  }
  for (const char* const path : {"/v1/models", "/v1/sessions", "/loglevel"}) {
    EXPECT_EQ(status(path, "evil.test:8591"), 403) << path;
  }
  for (const char* const path : {"/healthz", "/readyz", "/metrics"}) {
    EXPECT_EQ(status(path, "evil.test:8591"), 200) << path;
  }
}

TEST(SecurityStartTest, OtherMachinesNeedTls) {
  const auto start = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(),
                 {Binary("rivulet-server"), "--model=" + SourcePath(kModel), "--http=127.0.0.1:0"});
    return RunProgram(flags);
  };
  const Exit refused = start({"--listen=0.0.0.0:0"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.output, HasSubstr("--insecure"));
  const Exit missing = start({"--listen=127.0.0.1:0", "--tokens=/none"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.output, HasSubstr("/none"));
  const std::string file = TestDirectory() + "/tokens.json";
  WriteFile(file, R"({"tenants": [{"name": "a"}], "certificates": [{"cn": "b", "tenant": "a"}]})");
  const Exit one_sided = start({"--listen=127.0.0.1:0", "--tokens=" + file});
  EXPECT_EQ(one_sided.code, 1);
  EXPECT_THAT(one_sided.output, HasSubstr("--tls-client-ca"));
}

}  // namespace
}  // namespace rivulet::e2e
