// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/security/authenticator.h"

#include <openssl/crypto.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status.h"
#include "server/security/read_file.h"

namespace rivulet {
namespace {

constexpr size_t kMostFileBytes = size_t{4} << 20;
// Longer ones are not hashed.
constexpr size_t kMostTokenBytes = 4096;

CallerPtr Anyone() {
  auto caller = std::make_shared<Caller>();
  caller->tenant = std::make_shared<Tenant>("");
  caller->scopes = Scopes::All();
  return caller;
}

absl::Status Unauthenticated(const char* why) {
  return absl::UnauthenticatedError(
      absl::StrCat(why,
                   ": send the header \"Authorization: Bearer TOKEN\" with a token of this "
                   "server's --tokens file"));
}

std::string_view TokenOf(std::string_view authorization) {
  constexpr std::string_view kBearer = "bearer ";
  const absl::string_view text(authorization.data(), authorization.size());
  if (!absl::StartsWithIgnoreCase(text, {kBearer.data(), kBearer.size()})) return {};
  authorization.remove_prefix(kBearer.size());
  while (authorization.starts_with(' ')) authorization.remove_prefix(1);
  while (authorization.ends_with(' ')) authorization.remove_suffix(1);
  return authorization;
}

}  // namespace

Authenticator::Authenticator() : anyone_(Anyone()) {}

Authenticator::Authenticator(std::string path, std::function<WallClock::time_point()> now)
    : path_(std::move(path)), now_(std::move(now)) {}

absl::StatusOr<std::unique_ptr<Authenticator>> Authenticator::FromFile(
    std::string path, std::function<WallClock::time_point()> now) {
  std::unique_ptr<Authenticator> authenticator(new Authenticator(std::move(path), std::move(now)));
  RIVULET_RETURN_IF_ERROR(authenticator->Reload());
  return authenticator;
}

absl::Status Authenticator::Reload() {
  if (!asks_for_tokens()) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(const std::string text, ReadFile(path_, kMostFileBytes));
  const absl::StatusOr<TokenFile> file = ParseTokenFile(text);
  if (!file.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tokens ", path_, ": ", file.status().message()));
  }
  const std::shared_ptr<const Known> known = MakeKnown(*file);
  // A tenant that is new can use what it needs once its tokens count.
  MutexLock reloading(&reload_mutex_);
  if (tell_) tell_(known->tenants);
  MutexLock lock(&mutex_);
  known_ = known;
  // Tenants that have left the file go with their last request.
  std::erase_if(tenants_, [](const auto& named) { return named.second.use_count() == 1; });
  return absl::OkStatus();
}

std::shared_ptr<const Authenticator::Known> Authenticator::MakeKnown(const TokenFile& file) {
  MutexLock lock(&mutex_);
  auto known = std::make_shared<Known>();
  std::vector<std::shared_ptr<Tenant>> tenants;
  for (const TokenFile::TenantEntry& entry : file.tenants) {
    tenants.push_back(TenantOf(entry));
    known->tenants.insert(entry.name);
  }
  const auto caller_of = [&](const auto& entry) {
    auto caller = std::make_shared<Caller>();
    caller->tenant = tenants[entry.tenant];
    caller->scopes = entry.scopes;
    caller->token_name = entry.name;
    return caller;
  };
  for (const auto& entry : file.tokens) known->tokens.push_back({entry, caller_of(entry)});
  for (const auto& entry : file.certificates) {
    known->certificates.emplace(entry.peer, caller_of(entry));
  }
  return known;
}

void Authenticator::OnTenants(TellTenants tell) {
  MutexLock reloading(&reload_mutex_);
  tell_ = std::move(tell);
  if (tell_ && asks_for_tokens()) tell_(known()->tenants);
}

std::shared_ptr<Tenant> Authenticator::TenantOf(const TokenFile::TenantEntry& entry) {
  std::shared_ptr<Tenant>& tenant = tenants_[entry.name];
  if (tenant == nullptr) tenant = std::make_shared<Tenant>(entry.name);
  tenant->SetLimits(entry.limits);
  return tenant;
}

std::shared_ptr<const Authenticator::Known> Authenticator::known() const {
  MutexLock lock(&mutex_);
  return known_;
}

bool Authenticator::knows_certificates() const {
  return asks_for_tokens() && !known()->certificates.empty();
}

absl::StatusOr<CallerPtr> Authenticator::Admit(std::optional<std::string_view> authorization,
                                               Scope scope, const PeerNames& peer) const {
  if (!asks_for_tokens()) return anyone_;
  const bool by_token = authorization.has_value();
  RIVULET_ASSIGN_OR_RETURN(CallerPtr caller,
                           by_token ? Find(TokenOf(*authorization)) : FindPeer(peer));
  if (caller->scopes.Has(scope)) return caller;
  return absl::PermissionDeniedError(absl::StrCat(
      "the ", by_token ? "token" : "client's certificate",
      " is valid, but does not have the scope \"", kScopeNames[static_cast<size_t>(scope)],
      "\" that this needs: use another one, or add the scope in the --tokens file"));
}

absl::StatusOr<CallerPtr> Authenticator::Find(std::string_view token) const {
  if (token.empty() || token.size() > kMostTokenBytes) {
    return Unauthenticated("the Authorization header has no bearer token");
  }
  const std::shared_ptr<const Known> known = this->known();
  const Sha256Digest digest = Sha256(token);
  const Token* found = nullptr;
  for (const Token& token : known->tokens) {
    const bool same = CRYPTO_memcmp(token.entry.digest.data(), digest.data(), digest.size()) == 0;
    found = same ? &token : found;
  }
  if (found == nullptr) return Unauthenticated("the token is not valid");
  const auto& expires = found->entry.expires;
  if (expires.has_value() && *expires <= now_()) return Unauthenticated("the token has expired");
  return found->caller;
}

absl::StatusOr<CallerPtr> Authenticator::FindPeer(const PeerNames& peer) const {
  const std::shared_ptr<const Known> known = this->known();
  for (const std::string& name : peer) {
    const auto found = known->certificates.find(name);
    if (found != known->certificates.end()) return found->second;
  }
  return Unauthenticated("this server asks for a token");
}

std::vector<NamedTenantMetrics> Authenticator::metrics() const {
  std::vector<NamedTenantMetrics> all;
  MutexLock lock(&mutex_);
  for (const auto& [name, tenant] : tenants_) {
    all.push_back({name, std::shared_ptr<const TenantMetrics>(tenant, &tenant->metrics)});
  }
  return all;
}

}  // namespace rivulet
