// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Who gets through the handshake of the HTTP port. What follows it is tested over TLS in
// http_server_test.cc.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_directory.h"
#include "server/http/http_server.h"
#include "server/http/testing.h"
#include "server/metrics/metrics.h"
#include "server/security/test_certificates.h"
#include "server/security/tls_identity.h"

namespace rivulet {
namespace {

class HttpTlsTest : public testing::Test {
 protected:
  void Start(const CertificateAndKey& own, bool asks_clients = false) {
    Write(own);
    if (asks_clients) {
      paths_.client_ca = directory_ + "/ca.crt";
      WriteFile(paths_.client_ca, authority_.certificate);
    }
    auto identity = TlsIdentity::FromFiles(paths_);
    ASSERT_TRUE(identity.ok()) << identity.status();
    identity_ = *std::move(identity);
    HttpRoutes routes;
    routes.routes.push_back({"GET", "/", 0, [](const std::shared_ptr<HttpExchange>& exchange) {
                               exchange->Respond({200, "text/plain", {}, "hello"});
                             }});
    auto server =
        HttpServer::Start("127.0.0.1", 0, std::move(routes), metrics_, {}, identity_.get());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void Write(const CertificateAndKey& own) {
    WriteFile(paths_.certificate, own.certificate);
    WriteFile(paths_.key, own.key);
  }
  // The status of a request; 0 if there is no connection for it.
  int Get(const TestTls& tls) {
    TestHttpClient client(server_->port(), &tls);
    return client.connected() ? client.Get("/").status : 0;
  }
  TestTls Trusting(const CertificateAndKey& authority) {
    return {.authority = authority.certificate, .certificate = ""};
  }

  const std::string directory_ = TestDirectory();
  TlsPaths paths_{directory_ + "/tls.crt", directory_ + "/tls.key", ""};
  const CertificateAndKey authority_ = MakeCertificate({.name = "root", .authority = true});
  const CertificateAndKey other_ = MakeCertificate({.name = "other", .authority = true});
  const CertificateAndKey own_ = MakeCertificate({.issuer = &authority_});
  Metrics metrics_;
  std::unique_ptr<TlsIdentity> identity_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpTlsTest, ClientsSeeWhoTheServerIs) {
  Start(own_);
  EXPECT_EQ(Get(Trusting(authority_)), 200);
  EXPECT_EQ(Get(Trusting(other_)), 0);
}

TEST_F(HttpTlsTest, ClientsRefuseAnExpiredCertificate) {
  Start(MakeCertificate({.valid_until = -60, .issuer = &authority_}));
  EXPECT_EQ(Get(Trusting(authority_)), 0);
}

TEST_F(HttpTlsTest, PlainTextIsNotAnswered) {
  Start(own_);
  TestHttpClient client(server_->port());
  EXPECT_EQ(client.Get("/").status, 0);
  TestHttpClient garbage(server_->port());
  garbage.Send("\x16\x03\x01" + std::string(300, '\xff'));
  EXPECT_THAT(garbage.ReceiveAll(), testing::Not(testing::HasSubstr("hello")));
  EXPECT_EQ(Get(Trusting(authority_)), 200);
}

TEST_F(HttpTlsTest, AskedForACertificateClientsNeedOneOfTheAuthority) {
  Start(own_, /*asks_clients=*/true);
  TestTls tls = Trusting(authority_);
  EXPECT_EQ(Get(tls), 0);
  const auto with = [&](const CertificateRequest& request) {
    const CertificateAndKey client = MakeCertificate(request);
    tls.certificate = client.certificate;
    tls.key = client.key;
    return Get(tls);
  };
  EXPECT_EQ(with({.name = "client", .issuer = &authority_}), 200);
  EXPECT_EQ(with({.name = "client", .issuer = &other_}), 0);
  EXPECT_EQ(with({.name = "client"}), 0);
  EXPECT_EQ(with({.name = "client", .valid_until = -60, .issuer = &authority_}), 0);
  EXPECT_EQ(with({.name = "client", .valid_from = 3600, .issuer = &authority_}), 0);
}

TEST_F(HttpTlsTest, ARotationCountsForNewConnections) {
  Start(own_);
  TestTls old = Trusting(authority_);
  TestHttpClient open(server_->port(), &old);
  EXPECT_EQ(open.Get("/").status, 200);
  Write(MakeCertificate({.issuer = &other_}));
  ASSERT_TRUE(identity_->Reload().ok());
  EXPECT_EQ(Get(Trusting(authority_)), 0);
  EXPECT_EQ(Get(Trusting(other_)), 200);
  EXPECT_EQ(open.Get("/").status, 200);
}

}  // namespace
}  // namespace rivulet
