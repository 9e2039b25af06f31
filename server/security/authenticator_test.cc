// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/security/authenticator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <filesystem>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/test_directory.h"
#include "server/security/test_certificates.h"
#include "server/security/test_tokens.h"
#include "server/security/trace_context.h"

namespace rivulet {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

std::string TokenEntry(const std::string& token, const std::string& tenant,
                       const std::string& more = "") {
  return absl::StrCat(R"({"name": "of )", tenant, R"(", "sha256": ")", TokenHash(token),
                      R"(", "tenant": ")", tenant, "\"", more, "}");
}

std::string FileOf(const std::string& tenants, const std::string& tokens) {
  return absl::StrCat("{\"tenants\": [", tenants, "], \"tokens\": [", tokens, "]}");
}

const char kTwo[] = R"({"name": "red", "weight": 3}, {"name": "blue"})";

TEST(Sha256Test, IsTheStandardOne) {
  EXPECT_EQ(TokenHash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

class AuthenticatorTest : public testing::Test {
 protected:
  void Write(const std::string& text) { WriteFile(path_, text); }
  void Open() {
    auto opened = Authenticator::FromFile(path_, [this] { return now_; });
    ASSERT_TRUE(opened.ok()) << opened.status();
    authenticator_ = *std::move(opened);
  }
  absl::StatusOr<CallerPtr> Admit(const std::string& header, Scope scope = Scope::kGenerate) {
    return authenticator_->Admit(header, scope);
  }

  const std::string path_ = TestDirectory() + "/tokens.json";
  std::chrono::system_clock::time_point now_{seconds(1'800'000'000)};  // 15 January 2027
  std::unique_ptr<Authenticator> authenticator_;
};

TEST_F(AuthenticatorTest, WithoutAFileEveryClientMayDoEverything) {
  const Authenticator open;
  for (const Scope scope : {Scope::kGenerate, Scope::kSessions, Scope::kMetrics, Scope::kAdmin}) {
    const auto caller = open.Admit(std::nullopt, scope);
    ASSERT_TRUE(caller.ok());
    EXPECT_EQ((*caller)->tenant->name(), "");
  }
  EXPECT_FALSE(open.asks_for_tokens());
}

TEST_F(AuthenticatorTest, ATokenLeadsToItsTenant) {
  Write(FileOf(kTwo, TokenEntry("one", "red") + "," + TokenEntry("two", "blue")));
  Open();
  for (const char* const header : {"Bearer one", "bearer one", "BEARER  one "}) {
    const auto caller = Admit(header);
    ASSERT_TRUE(caller.ok()) << header;
    EXPECT_EQ((*caller)->tenant->name(), "red");
    EXPECT_EQ((*caller)->tenant->weight(), 3u);
    EXPECT_EQ((*caller)->token_name, "of red");
  }
  EXPECT_EQ((*Admit("Bearer two"))->tenant->name(), "blue");
}

TEST_F(AuthenticatorTest, RefusesWhatIsNoToken) {
  Write(FileOf(kTwo, TokenEntry("one", "red")));
  Open();
  for (const std::string header : {"", "one", "Bearer", "Bearer ", "Basic one", "Bearer One",
                                   "Bearer one two", "Bearer one\n"}) {
    const absl::Status status = Admit(header).status();
    EXPECT_TRUE(absl::IsUnauthenticated(status)) << header;
    EXPECT_THAT(std::string(status.message()), HasSubstr("Authorization: Bearer")) << header;
  }
  EXPECT_TRUE(absl::IsUnauthenticated(Admit("Bearer " + std::string(5000, 'x')).status()));
  EXPECT_TRUE(
      absl::IsUnauthenticated(authenticator_->Admit(std::nullopt, Scope::kGenerate).status()));
}

TEST_F(AuthenticatorTest, ScopesBoundWhatATokenMayDo) {
  Write(FileOf(kTwo, TokenEntry("plain", "red") + "," +
                         TokenEntry("scraper", "red", R"(, "scopes": ["metrics"])")));
  Open();
  EXPECT_TRUE(Admit("Bearer plain", Scope::kSessions).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Admit("Bearer plain", Scope::kMetrics).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(Admit("Bearer plain", Scope::kAdmin).status()));
  EXPECT_TRUE(Admit("Bearer scraper", Scope::kMetrics).ok());
  const absl::Status status = Admit("Bearer scraper").status();
  EXPECT_TRUE(absl::IsPermissionDenied(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"generate\""));
}

std::string PeerFile(const std::string& certificates) {
  return absl::StrCat("{\"tenants\": [", kTwo, "], \"certificates\": [", certificates, "]}");
}

TEST_F(AuthenticatorTest, ACertificateLeadsToItsTenant) {
  Write(PeerFile(R"({"uri": "spiffe://x/blue", "tenant": "blue", "scopes": ["generate"]},
                    {"dns": "Red.Example", "tenant": "red", "name": "of red"},
                    {"cn": "x", "tenant": "red"})"));
  Open();
  EXPECT_TRUE(authenticator_->knows_certificates());
  const auto admit = [&](const PeerNames& peer, Scope scope = Scope::kGenerate) {
    return authenticator_->Admit(std::nullopt, scope, peer);
  };
  EXPECT_EQ((*admit({"dns:red.example"}))->tenant->name(), "red");
  EXPECT_EQ((*admit({"dns:red.example"}))->token_name, "of red");
  EXPECT_EQ((*admit({"uri:spiffe://x/blue", "dns:red.example"}))->tenant->name(), "blue");
  EXPECT_TRUE(absl::IsPermissionDenied(admit({"uri:spiffe://x/blue"}, Scope::kSessions).status()));
  for (const PeerNames& peer : std::vector<PeerNames>{
           {}, {"cn:red.example"}, {"uri:spiffe://x/blue2"}, {"spiffe://x/blue"}, {"dns:x"}}) {
    EXPECT_TRUE(absl::IsUnauthenticated(admit(peer).status()));
  }
  // A token that is not valid is no certificate's.
  EXPECT_TRUE(absl::IsUnauthenticated(
      authenticator_->Admit("Bearer one", Scope::kGenerate, {"cn:x"}).status()));
}

TEST_F(AuthenticatorTest, WrongCertificatesAreRefusedByName) {
  const struct {
    const char *entry, *error;
  } kCases[] = {
      {R"({"tenant": "red"})", "certificates[0]: give one of uri, dns and cn"},
      {R"({"cn": "a", "dns": "b", "tenant": "red"})", "give one of"},
      {R"({"cn": "", "tenant": "red"})", "cn: it is empty"},
      {R"({"cn": 1, "tenant": "red"})", "give cn, a string"},
      {R"({"cn": "a", "tenant": "green"})", "\"green\" is not in tenants"},
      {R"({"cn": "a", "tenant": "red", "expires": ""})", "unknown field \"expires\""},
      {R"({"dns": "a", "tenant": "red"}, {"dns": "A", "tenant": "blue"})",
       "certificates[1]: this name is in the file already"},
      {R"({"cn": "a", "tenant": "red"}, {"cn": "b", "cn": "a", "tenant": "blue"})",
       "certificates[1]: the key \"cn\" is there twice"},
      {"", "certificates: give a list"},
  };
  for (const auto& [entry, error] : kCases) {
    Write(PeerFile(entry));
    const auto opened = Authenticator::FromFile(path_);
    EXPECT_THAT(std::string(opened.status().message()), HasSubstr(error)) << entry;
  }
}

TEST(PeerNamesTest, AreThoseOfTheCertificate) {
  const CertificateAndKey made = MakeCertificate({.name = "Search", .uri = "spiffe://x/Search"});
  BIO* const bio =
      BIO_new_mem_buf(made.certificate.data(), static_cast<int>(made.certificate.size()));
  X509* const certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  EXPECT_THAT(
      NamesOfCertificate(*certificate),
      testing::ElementsAre("uri:spiffe://x/Search", "dns:localhost", "dns:search", "cn:Search"));
  X509_free(certificate);
  BIO_free(bio);
}

// The last common name is the most specific one. Programs that end a name at a byte 0 would read
// another one.
TEST(PeerNamesTest, TheLastCommonNameCountsIfItHasNoZero) {
  using std::string_view_literals::operator""sv;
  const auto names = [](std::initializer_list<std::string_view> common_names) {
    X509* const certificate = X509_new();
    for (const std::string_view name : common_names) {
      X509_NAME_add_entry_by_NID(X509_get_subject_name(certificate), NID_commonName, MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(name.data()),
                                 static_cast<int>(name.size()), -1, 0);
    }
    const PeerNames read = NamesOfCertificate(*certificate);
    X509_free(certificate);
    return read;
  };
  EXPECT_THAT(names({"first", "last"}), testing::ElementsAre("cn:last"));
  EXPECT_TRUE(names({"first", "search\0.evil.test"sv}).empty());
  EXPECT_TRUE(names({}).empty());
}

TEST_F(AuthenticatorTest, TokensExpire) {
  Write(FileOf(kTwo, TokenEntry("one", "red", R"(, "expires": "2027-01-15T08:00:01Z")")));
  Open();
  EXPECT_TRUE(Admit("Bearer one").ok());
  now_ += seconds(1);
  EXPECT_THAT(std::string(Admit("Bearer one").status().message()), HasSubstr("expired"));
}

TEST_F(AuthenticatorTest, AReloadCountsAtOnceAndKeepsWhatTenantsUsed) {
  Write(FileOf(R"({"name": "red", "requests_per_minute": 2})", TokenEntry("one", "red")));
  Open();
  const CallerPtr before = *Admit("Bearer one");
  const Tenant::TimePoint start = Tenant::Clock::now();
  EXPECT_FALSE(before->tenant->BeginRequest(start).has_value());
  EXPECT_FALSE(before->tenant->BeginRequest(start).has_value());
  Write(FileOf(R"({"name": "red", "requests_per_minute": 3})", TokenEntry("new", "red")));
  ASSERT_TRUE(authenticator_->Reload().ok());
  EXPECT_TRUE(absl::IsUnauthenticated(Admit("Bearer one").status()));
  const CallerPtr after = *Admit("Bearer new");
  EXPECT_EQ(after->tenant, before->tenant);
  EXPECT_FALSE(after->tenant->BeginRequest(start).has_value());
  EXPECT_TRUE(after->tenant->BeginRequest(start).has_value());
}

TEST_F(AuthenticatorTest, TenantsThatLeaveTheFileGoWithTheirLastRequest) {
  Write(FileOf(kTwo, TokenEntry("one", "red") + "," + TokenEntry("two", "blue")));
  Open();
  CallerPtr red = *Admit("Bearer one");
  Write(FileOf(R"({"name": "green"})", TokenEntry("new", "green")));
  ASSERT_TRUE(authenticator_->Reload().ok());
  ASSERT_EQ(authenticator_->metrics().size(), 2u);
  EXPECT_EQ(authenticator_->metrics()[1].tenant, "red");
  red = nullptr;
  ASSERT_TRUE(authenticator_->Reload().ok());
  EXPECT_EQ(authenticator_->metrics().size(), 1u);
}

TEST_F(AuthenticatorTest, TellsWhichTenantsThereAreBeforeTheirTokensCount) {
  using Names = std::set<std::string, std::less<>>;
  Write(FileOf(kTwo, TokenEntry("one", "red")));
  Open();
  std::vector<Names> told;
  authenticator_->OnTenants([&](Names names) {
    EXPECT_TRUE(Admit("Bearer one").ok()) << "the file that is left still counts";
    told.push_back(std::move(names));
  });
  EXPECT_THAT(told, testing::ElementsAre(Names{"blue", "red"})) << "also without a token";
  Write("{");
  EXPECT_FALSE(authenticator_->Reload().ok());
  Write(FileOf(R"({"name": "green"})", TokenEntry("new", "green")));
  ASSERT_TRUE(authenticator_->Reload().ok());
  EXPECT_THAT(told, testing::ElementsAre(Names{"blue", "red"}, Names{"green"}));
  authenticator_->OnTenants(nullptr);
  ASSERT_TRUE(authenticator_->Reload().ok());
  EXPECT_EQ(told.size(), 2u);
  Authenticator().OnTenants([](const Names&) { ADD_FAILURE() << "it asks for no tokens"; });
}

TEST_F(AuthenticatorTest, APipeInPlaceOfTheFileHoldsNothingUp) {
  Write(FileOf(kTwo, TokenEntry("one", "red")));
  Open();
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsNotFound(authenticator_->Reload()));
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_TRUE(absl::IsNotFound(authenticator_->Reload()));
  EXPECT_TRUE(Admit("Bearer one").ok());
}

TEST_F(AuthenticatorTest, AFileThatIsWrongChangesNothing) {
  Write(FileOf(kTwo, TokenEntry("one", "red")));
  Open();
  Write("{");
  const absl::Status status = authenticator_->Reload();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("tokens.json"));
  EXPECT_TRUE(Admit("Bearer one").ok());
  std::filesystem::remove(path_);
  EXPECT_TRUE(absl::IsNotFound(authenticator_->Reload()));
  EXPECT_TRUE(Admit("Bearer one").ok());
}

TEST(TokenFileTest, NamesWhatIsWrong) {
  const std::string token = TokenEntry("one", "red");
  const struct {
    std::string file, message;
  } kCases[] = {
      {"", "not JSON"},
      {"[]", "object"},
      {"{}", "tenants: give a list"},
      {FileOf("", token), "tenants: give a list of 1"},
      {FileOf(kTwo, ""), "tokens: give a list of 1"},
      {FileOf("1", token), "tenants[0]: give an object"},
      {FileOf(R"({"name": ""})", token), "tenants[0]: name"},
      {FileOf(R"({"name": "a b"})", token), "tenants[0]: name"},
      {FileOf(R"({"name": 1})", token), "tenants[0]: give name"},
      {FileOf(R"({"name": "red"}, {"name": "red"})", token), "in the file already"},
      {FileOf(R"({"name": "red", "weigth": 2})", token), "unknown field \"weigth\""},
      {FileOf(R"({"name": "red", "weight": 0})", token), "weight: give a whole number"},
      {FileOf(R"({"name": "red", "weight": 1001})", token), "from 1 to 1000"},
      {FileOf(R"({"name": "red", "max_requests": -1})", token), "max_requests"},
      {FileOf(R"({"name": "red", "max_requests": 1.5})", token), "max_requests"},
      {FileOf(R"({"name": "red", "tokens_per_minute": "9"})", token), "tokens_per_minute"},
      {FileOf(R"({"name": "blue"})", token), "\"red\" is not in tenants"},
      {FileOf(kTwo, token + "," + token), "tokens[1]: the sha256 is in the file already"},
      {FileOf(kTwo, R"({"sha256": "12", "tenant": "red"})"), "64 hexadecimal digits"},
      {FileOf(kTwo, TokenEntry("one", "red", R"(, "scopes": ["root"])")), "scopes: give a list of"},
      {FileOf(kTwo, TokenEntry("one", "red", R"(, "scopes": "admin")")), "scopes"},
      {FileOf(kTwo, TokenEntry("one", "red", R"(, "expires": "soon")")), "expires"},
      {FileOf(kTwo, TokenEntry("one", "red", R"(, "token": "one")")), "unknown field \"token\""},
      {FileOf(R"({"name": "red", "max_requests": 9, "max_requests": 900})", token),
       "tenants[0]: the key \"max_requests\" is there twice"},
      {FileOf(kTwo, token + "," + TokenEntry("two", "red", R"(, "tenant": "blue")")),
       "tokens[1]: the key \"tenant\" is there twice"},
      {R"({"tenants": [{"name": "red"}], "tokens": [], "tokens": [)" + token + "]}",
       "the file: the key \"tokens\" is there twice"},
  };
  for (const auto& [file, message] : kCases) {
    const auto parsed = ParseTokenFile(file);
    ASSERT_FALSE(parsed.ok()) << file;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(message)) << file;
  }
  EXPECT_TRUE(ParseTokenFile(FileOf(kTwo, token)).ok());
}

TEST(TenantTest, RequestsAMinuteComeBackWithTime) {
  Tenant tenant("red");
  tenant.SetLimits({.requests_per_minute = 60});
  Tenant::TimePoint now = Tenant::Clock::now();
  for (int i = 0; i < 60; ++i) EXPECT_FALSE(tenant.BeginRequest(now).has_value()) << i;
  const auto refused = tenant.BeginRequest(now);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->retry_after, milliseconds(1000));
  EXPECT_TRUE(tenant.BeginRequest(now + milliseconds(999)).has_value());
  EXPECT_FALSE(tenant.BeginRequest(now + milliseconds(1001)).has_value());
  EXPECT_EQ(tenant.metrics.requests.value(), 61u);
  EXPECT_EQ(tenant.metrics.requests_refused.value(), 2u);
}

TEST(TenantTest, TokensAreOwedAfterwards) {
  Tenant tenant("red");
  tenant.SetLimits({.tokens_per_minute = 600});
  const Tenant::TimePoint now = Tenant::Clock::now();
  EXPECT_FALSE(tenant.BeginRequest(now).has_value());
  tenant.ChargeTokens(1200, now);
  const auto refused = tenant.BeginRequest(now);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->retry_after, milliseconds(60'100));
  EXPECT_FALSE(tenant.BeginRequest(now + milliseconds(60'101)).has_value());
}

TEST(TenantTest, OpenRequestsAreBounded) {
  Tenant tenant("red");
  tenant.SetLimits({.max_requests = 2});
  const Tenant::TimePoint now = Tenant::Clock::now();
  EXPECT_FALSE(tenant.BeginRequest(now).has_value());
  EXPECT_FALSE(tenant.BeginRequest(now).has_value());
  EXPECT_TRUE(tenant.BeginRequest(now).has_value());
  EXPECT_EQ(tenant.metrics.requests_open.value(), 2);
  tenant.EndRequest();
  EXPECT_FALSE(tenant.BeginRequest(now).has_value());
}

TEST(TenantTest, WithoutLimitsNothingIsRefused) {
  Tenant tenant("");
  const Tenant::TimePoint now = Tenant::Clock::now();
  tenant.ChargeTokens(int64_t{1} << 40, now);
  for (int i = 0; i < 10000; ++i) ASSERT_FALSE(tenant.BeginRequest(now).has_value());
}

TEST(TenantTest, ANewLimitDoesNotCountWhatCameBefore) {
  Tenant tenant("red");
  const Tenant::TimePoint now = Tenant::Clock::now();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(tenant.BeginRequest(now).has_value());
  tenant.ChargeTokens(int64_t{1} << 40, now);
  tenant.SetLimits({.requests_per_minute = 2, .tokens_per_minute = 10});
  EXPECT_FALSE(tenant.BeginRequest(now).has_value());
  EXPECT_FALSE(tenant.BeginRequest(now).has_value());
  EXPECT_TRUE(tenant.BeginRequest(now).has_value());
}

TEST(TraceContextTest, ReadsTheTraceIdAndNothingElse) {
  const std::string trace = "0af7651916cd43dd8448eb211c80319c";
  const std::string rest = "-b7ad6b7169203331-01";
  EXPECT_EQ(TraceIdOf("00-" + trace + rest), trace);
  EXPECT_EQ(TraceIdOf("cc-" + trace + rest + "-more"), trace);
  for (const std::string& bad :
       {std::string(), "00-" + trace, "ff-" + trace + rest, "00-" + trace + rest + "-more",
        "00-" + std::string(32, '0') + rest, "00-" + trace + "-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C" + rest, "00_" + trace + rest,
        "cc-" + trace + rest + "more"}) {
    EXPECT_EQ(TraceIdOf(bad), "") << bad;
  }
}

}  // namespace
}  // namespace rivulet
