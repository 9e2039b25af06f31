// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Who may do what over gRPC: TLS, tokens, and what tenants see of each other.
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_directory.h"
#include "server/rpc/service_fixture.h"
#include "server/security/test_certificates.h"
#include "server/security/test_tokens.h"

namespace rivulet {
namespace {

using grpc::StatusCode;
using testing::HasSubstr;

std::string TokenEntry(const std::string& token, const std::string& more = "") {
  return absl::StrCat("{\"sha256\": \"", TokenHash(token), "\", \"tenant\": \"", token.substr(0, 3),
                      "\"", more, "}");
}

// Two tenants, red and blu; the token "red" is red's.
class AccessTest : public ServiceStack {
 protected:
  AccessTest() {
    WriteTokens(TokenEntry("red") + "," + TokenEntry("blu") + "," +
                TokenEntry("red reader", R"(, "scopes": ["sessions"])"));
    authenticator_with_tokens_ = *Authenticator::FromFile(tokens_);
    WriteFile(certificate_, own_.certificate);
    WriteFile(key_, own_.key);
  }
  ~AccessTest() override {
    scheduler_->AbortAll(absl::UnavailableError("test ends"));
    if (server_ != nullptr) server_->Shutdown(seconds(2));
  }

  void WriteTokens(const std::string& entries, const std::string& limits = "") {
    WriteFile(tokens_, absl::StrCat(R"({"tenants": [{"name": "red")", limits,
                                    R"(}, {"name": "blu"}], "tokens": [)", entries, "]}"));
  }

  void Start(const TlsIdentity* tls = nullptr) {
    with_tokens_ = std::make_unique<ServiceContext>(
        ServiceContext{model_, *scheduler_, sessions_, pool_, metrics_, calls_,
                       *authenticator_with_tokens_, /*max_prompt=*/1000});
    auto server = GrpcServer::Start("127.0.0.1", 0, *with_tokens_, tls);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    Connect(grpc::InsecureChannelCredentials());
  }
  void Connect(const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = grpc::CreateCustomChannel("localhost:" + std::to_string(server_->port()),
                                                   credentials, arguments);
    stub_ = v1::Inference::NewStub(channel);
    sessions_stub_ = v1::Sessions::NewStub(channel);
  }

  static void Authorize(grpc::ClientContext& context, const std::string& token) {
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
  }

  grpc::Status Generate(const std::string& token, const std::string& session = "",
                        v1::GenerateResponse* last = nullptr, const std::string& prompt = "ab") {
    grpc::ClientContext context;
    Authorize(context, token);
    v1::GenerateRequest request =
        session.empty() ? MakeProto(prompt, 4) : TurnOf(session, prompt, 4);
    request.set_report_cache(true);
    auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
      if (last != nullptr) *last = message;
    }
    return reader->Finish();
  }
  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (v1::Sessions::Stub::*method)(grpc::ClientContext*, const Request&,
                                                               Response*),
                    const std::string& token, const Request& request, Response* response) {
    grpc::ClientContext context;
    Authorize(context, token);
    return (sessions_stub_.get()->*method)(&context, request, response);
  }
  StatusCode Create(const std::string& token, const std::string& id) {
    v1::CreateSessionRequest request;
    request.set_id(id);
    v1::Session session;
    return Call(&v1::Sessions::Stub::CreateSession, token, request, &session).error_code();
  }
  grpc::Status Get(const std::string& token, const std::string& id) {
    v1::GetSessionRequest request;
    request.set_id(id);
    v1::Session session;
    return Call(&v1::Sessions::Stub::GetSession, token, request, &session);
  }

  const std::string directory_ = TestDirectory();
  const std::string tokens_ = directory_ + "/tokens.json";
  const std::string certificate_ = directory_ + "/tls.crt", key_ = directory_ + "/tls.key";
  const CertificateAndKey authority_ = MakeCertificate({.name = "root", .authority = true});
  const CertificateAndKey own_ = MakeCertificate({.issuer = &authority_});
  std::unique_ptr<Authenticator> authenticator_with_tokens_;
  std::unique_ptr<ServiceContext> with_tokens_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<v1::Inference::Stub> stub_;
  std::unique_ptr<v1::Sessions::Stub> sessions_stub_;
};

TEST_F(AccessTest, EveryMethodAsksForAToken) {
  Start();
  EXPECT_EQ(Generate("").error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Generate("green").error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(Generate("red").ok());
  EXPECT_EQ(Create("", "s"), StatusCode::UNAUTHENTICATED);
  grpc::ClientContext first, second, third, fourth;
  v1::Model model;
  EXPECT_EQ(stub_->GetModel(&first, {}, &model).error_code(), StatusCode::UNAUTHENTICATED);
  v1::TokenizeResponse tokens;
  EXPECT_EQ(stub_->Tokenize(&second, {}, &tokens).error_code(), StatusCode::UNAUTHENTICATED);
  v1::ScoreResponse scores;
  EXPECT_EQ(stub_->Score(&third, {}, &scores).error_code(), StatusCode::UNAUTHENTICATED);
  auto chat = stub_->Chat(&fourth);
  v1::ChatRequest turn;
  *turn.mutable_turn() = MakeProto("ab", 4);
  chat->Write(turn);
  v1::GenerateResponse response;
  EXPECT_FALSE(chat->Read(&response));
  EXPECT_EQ(chat->Finish().error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Count(Outcome::kRejectedCaller), 7u);
}

TEST_F(AccessTest, ScopesAreKept) {
  Start();
  EXPECT_EQ(Create("red reader", "s"), StatusCode::OK);
  const grpc::Status refused = Generate("red reader");
  EXPECT_EQ(refused.error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(), HasSubstr("generate"));
}

TEST_F(AccessTest, ATenantDoesNotSeeTheSessionsOfAnother) {
  Start();
  ASSERT_EQ(Create("red", "s"), StatusCode::OK);
  ASSERT_TRUE(Generate("red", "s").ok());
  const grpc::Status missing = Get("blu", "s");
  EXPECT_EQ(missing.error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(missing.error_message(), Get("red", "t").error_message().replace(12, 1, "s"));
  EXPECT_EQ(Generate("blu", "s").error_code(), StatusCode::NOT_FOUND);
  v1::ListSessionsResponse list;
  ASSERT_TRUE(
      Call(&v1::Sessions::Stub::ListSessions, "blu", v1::ListSessionsRequest(), &list).ok());
  EXPECT_EQ(list.sessions_size(), 0);
  v1::ForkSessionRequest fork;
  fork.set_id("s");
  v1::Session session;
  EXPECT_EQ(Call(&v1::Sessions::Stub::ForkSession, "blu", fork, &session).error_code(),
            StatusCode::NOT_FOUND);
  v1::RewindSessionRequest rewind;
  rewind.set_id("s");
  EXPECT_EQ(Call(&v1::Sessions::Stub::RewindSession, "blu", rewind, &session).error_code(),
            StatusCode::NOT_FOUND);
  v1::UpdateSessionRequest update;
  update.set_id("s");
  update.set_name("mine");
  EXPECT_EQ(Call(&v1::Sessions::Stub::UpdateSession, "blu", update, &session).error_code(),
            StatusCode::NOT_FOUND);
  v1::DeleteSessionRequest gone;
  gone.set_id("s");
  v1::DeleteSessionResponse nothing;
  EXPECT_EQ(Call(&v1::Sessions::Stub::DeleteSession, "blu", gone, &nothing).error_code(),
            StatusCode::NOT_FOUND);
  // Both may use the same id, and a fork stays with its tenant.
  EXPECT_EQ(Create("blu", "s"), StatusCode::OK);
  fork.set_new_id("f");
  EXPECT_TRUE(Call(&v1::Sessions::Stub::ForkSession, "red", fork, &session).ok());
  EXPECT_TRUE(Get("red", "f").ok());
  EXPECT_EQ(Get("blu", "f").error_code(), StatusCode::NOT_FOUND);
}

TEST_F(AccessTest, ATokenThatWasWithdrawnIsRefusedAtOnce) {
  Start();
  EXPECT_TRUE(Generate("red").ok());
  WriteTokens(TokenEntry("blu"));
  ASSERT_TRUE(authenticator_with_tokens_->Reload().ok());
  EXPECT_EQ(Generate("red").error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(Generate("blu").ok());
}

TEST_F(AccessTest, AChatThatIsOpenEndsWithItsToken) {
  Start();
  grpc::ClientContext context;
  Authorize(context, "red");
  auto chat = stub_->Chat(&context);
  v1::ChatRequest turn;
  *turn.mutable_turn() = MakeProto("ab", 4);
  v1::GenerateResponse response;
  chat->Write(turn);
  do {
    ASSERT_TRUE(chat->Read(&response));
  } while (response.finish_reason() == v1::FINISH_REASON_UNSPECIFIED);
  WriteTokens(TokenEntry("blu"));
  ASSERT_TRUE(authenticator_with_tokens_->Reload().ok());
  chat->Write(turn);
  EXPECT_FALSE(chat->Read(&response));
  EXPECT_EQ(chat->Finish().error_code(), StatusCode::UNAUTHENTICATED);
  // The session that it made was red's, and has gone with it.
  EXPECT_TRUE(Eventually([&] { return sessions_.List({"red", ""}, 10).empty(); }));
}

TEST_F(AccessTest, ALimitIsSaidWithTheTimeToWait) {
  WriteTokens(TokenEntry("red") + "," + TokenEntry("blu"), R"(, "requests_per_minute": 2)");
  ASSERT_TRUE(authenticator_with_tokens_->Reload().ok());
  Start();
  EXPECT_TRUE(Generate("red").ok());
  EXPECT_TRUE(Generate("red").ok());
  grpc::ClientContext context;
  Authorize(context, "red");
  auto reader = stub_->Generate(&context, MakeProto("ab", 4));
  v1::GenerateResponse message;
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::RESOURCE_EXHAUSTED);
  const auto& trailer = context.GetServerTrailingMetadata();
  const auto retry = trailer.find("retry-after-ms");
  ASSERT_NE(retry, trailer.end());
  const int64_t ms = std::stoll(std::string(retry->second.data(), retry->second.size()));
  EXPECT_GT(ms, 1000);
  EXPECT_LE(ms, 30'000);
  EXPECT_TRUE(Generate("blu").ok());
  EXPECT_EQ(Count(Outcome::kRejectedLimit), 1u);
}

// What a session holds already was not charged to its turns, so it is not given back either.
TEST_F(AccessTest, TurnsOfASessionAreChargedForTheirOwnTokens) {
  WriteTokens(TokenEntry("red") + "," + TokenEntry("blu"), R"(, "tokens_per_minute": 60)");
  ASSERT_TRUE(authenticator_with_tokens_->Reload().ok());
  Start();
  ASSERT_EQ(Create("red", "s"), StatusCode::OK);
  int turns = 0;
  while (turns < 30 && Generate("red", "s").ok()) ++turns;
  EXPECT_NEAR(turns, 10, 1);  // of 2 and 4 tokens
}

TEST_F(AccessTest, ARequestThatCannotFitCostsNoTokens) {
  WriteTokens(TokenEntry("red") + "," + TokenEntry("blu"), R"(, "tokens_per_minute": 60)");
  ASSERT_TRUE(authenticator_with_tokens_->Reload().ok());
  Start();
  for (int i = 0; i < 10; ++i) {
    grpc::ClientContext context;
    Authorize(context, "red");
    v1::GenerateRequest request;
    request.mutable_token_ids()->mutable_ids()->Resize(50, 0);
    request.set_n(64);
    auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse response;
    EXPECT_FALSE(reader->Read(&response));
    EXPECT_THAT(reader->Finish().error_message(), HasSubstr("state slots"));
  }
  EXPECT_TRUE(Generate("red").ok());
}

TEST_F(AccessTest, EveryCallCountsButThosePolled) {
  WriteTokens(TokenEntry("red") + "," + TokenEntry("blu"), R"(, "requests_per_minute": 3)");
  ASSERT_TRUE(authenticator_with_tokens_->Reload().ok());
  Start();
  const auto tokenize = [&] {
    grpc::ClientContext context;
    Authorize(context, "red");
    v1::TokenizeRequest request;
    request.set_text("ab");
    v1::TokenizeResponse response;
    return stub_->Tokenize(&context, request, &response).error_code();
  };
  EXPECT_EQ(tokenize(), StatusCode::OK);
  EXPECT_EQ(Create("red", "s"), StatusCode::OK);
  EXPECT_EQ(tokenize(), StatusCode::OK);
  EXPECT_EQ(tokenize(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Create("red", "t"), StatusCode::RESOURCE_EXHAUSTED);
  grpc::ClientContext context;
  Authorize(context, "red");
  v1::Model model;
  EXPECT_TRUE(stub_->GetModel(&context, {}, &model).ok());
  const auto all = authenticator_with_tokens_->metrics();
  EXPECT_TRUE(Eventually([&] { return all[1].metrics->requests_open.value() == 0; }));
}

TEST_F(AccessTest, AStreamWithoutATokenDoesNotStayOpen) {
  Start();
  grpc::ClientContext context;
  auto chat = stub_->Chat(&context);
  v1::GenerateResponse response;
  EXPECT_FALSE(chat->Read(&response));
  EXPECT_EQ(chat->Finish().error_code(), StatusCode::UNAUTHENTICATED);
}

TEST_F(AccessTest, TwoTokensAreNone) {
  Start();
  grpc::ClientContext context;
  Authorize(context, "red");
  Authorize(context, "blu");
  v1::Model model;
  EXPECT_EQ(stub_->GetModel(&context, {}, &model).error_code(), StatusCode::UNAUTHENTICATED);
}

TEST_F(AccessTest, TenantsAreCountedApart) {
  Start();
  EXPECT_TRUE(Generate("red").ok());
  EXPECT_TRUE(Generate("blu").ok());
  EXPECT_TRUE(Generate("blu").ok());
  EXPECT_TRUE(WaitUntilIdle());
  const auto all = authenticator_with_tokens_->metrics();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].tenant, "blu");
  EXPECT_EQ(all[0].metrics->requests.value(), 2u);
  EXPECT_EQ(all[0].metrics->generation_tokens.value(), 8u);
  EXPECT_EQ(all[1].metrics->generation_tokens.value(), 4u);
  EXPECT_TRUE(Eventually([&] { return all[0].metrics->requests_open.value() == 0; }));
}

TEST_F(AccessTest, TlsKeepsOutPlainTextAndOtherAuthorities) {
  const auto identity = *TlsIdentity::FromFiles({certificate_, key_, ""});
  Start(identity.get());
  EXPECT_EQ(Generate("red").error_code(), StatusCode::UNAVAILABLE);
  Connect(grpc::SslCredentials({MakeCertificate({.authority = true}).certificate, "", ""}));
  EXPECT_EQ(Generate("red").error_code(), StatusCode::UNAVAILABLE);
  Connect(grpc::SslCredentials({authority_.certificate, "", ""}));
  EXPECT_TRUE(Generate("red").ok());
  EXPECT_EQ(Generate("").error_code(), StatusCode::UNAUTHENTICATED);
}

TEST_F(AccessTest, MutualTlsAsksForACertificateOfTheAuthority) {
  WriteFile(directory_ + "/ca.crt", authority_.certificate);
  const auto identity = *TlsIdentity::FromFiles({certificate_, key_, directory_ + "/ca.crt"});
  Start(identity.get());
  const auto with = [&](const CertificateAndKey& client) {
    Connect(grpc::SslCredentials({authority_.certificate, client.key, client.certificate}));
    return Generate("red").error_code();
  };
  EXPECT_EQ(with({}), StatusCode::UNAVAILABLE);
  EXPECT_EQ(with(MakeCertificate({.name = "client", .issuer = &authority_})), StatusCode::OK);
  EXPECT_EQ(with(MakeCertificate({.name = "client"})), StatusCode::UNAVAILABLE);
  EXPECT_EQ(with(MakeCertificate({.name = "client", .valid_until = -60, .issuer = &authority_})),
            StatusCode::UNAVAILABLE);
}

TEST_F(AccessTest, ACertificateStandsForAToken) {
  WriteFile(directory_ + "/ca.crt", authority_.certificate);
  WriteFile(tokens_, absl::StrCat(R"({"tenants": [{"name": "red"}, {"name": "blu"}], "tokens": [)",
                                  TokenEntry("red"), R"(], "certificates": [
      {"uri": "spiffe://x/blu", "tenant": "blu"}, {"dns": "reds.example", "tenant": "red"},
      {"cn": "Blu client", "tenant": "blu", "scopes": ["sessions"]}]})"));
  ASSERT_TRUE(authenticator_with_tokens_->Reload().ok());
  const auto identity = *TlsIdentity::FromFiles({certificate_, key_, directory_ + "/ca.crt"});
  Start(identity.get());
  const auto be = [&](const std::string& name, const std::string& uri = "") {
    const CertificateAndKey own =
        MakeCertificate({.name = name, .issuer = &authority_, .uri = uri});
    Connect(grpc::SslCredentials({authority_.certificate, own.key, own.certificate}));
  };
  be("unknown");
  EXPECT_EQ(Generate("").error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(Generate("red").ok());
  be("unknown", "spiffe://x/blu");
  EXPECT_TRUE(Generate("").ok());
  EXPECT_EQ(Create("", "s"), StatusCode::OK);
  EXPECT_EQ(Get("red", "s").error_code(), StatusCode::NOT_FOUND);  // the token is another tenant's
  EXPECT_EQ(Generate("green").error_code(), StatusCode::UNAUTHENTICATED);
  be("Reds.Example");
  EXPECT_TRUE(Generate("").ok());
  EXPECT_EQ(Get("", "s").error_code(), StatusCode::NOT_FOUND);
  be("Blu client");
  EXPECT_TRUE(Get("", "s").ok());
  EXPECT_EQ(Generate("").error_code(), StatusCode::PERMISSION_DENIED);
}

TEST_F(AccessTest, ARotationCountsForNewConnections) {
  const auto identity = *TlsIdentity::FromFiles({certificate_, key_, ""});
  Start(identity.get());
  const CertificateAndKey next_authority = MakeCertificate({.name = "next", .authority = true});
  const CertificateAndKey next = MakeCertificate({.issuer = &next_authority});
  Connect(grpc::SslCredentials({authority_.certificate, "", ""}));
  EXPECT_TRUE(Generate("red").ok());
  WriteFile(certificate_, next.certificate);
  EXPECT_FALSE(identity->Reload().ok());
  WriteFile(key_, next.key);
  ASSERT_TRUE(identity->Reload().ok());
  EXPECT_TRUE(Generate("red").ok());  // on its open connection
  Connect(grpc::SslCredentials({authority_.certificate, "", ""}));
  EXPECT_EQ(Generate("red").error_code(), StatusCode::UNAVAILABLE);
  Connect(grpc::SslCredentials({next_authority.certificate, "", ""}));
  EXPECT_TRUE(Generate("red").ok());
}

}  // namespace
}  // namespace rivulet
