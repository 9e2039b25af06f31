// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Bearer tokens → callers; without a token, the verified certificate of a client (mutual TLS) if
// the file has its name. Without a file, every client is one caller that may do everything.
//
// A token is compared by its hash, with every entry and in constant time, so that the time of an
// answer tells nothing about the tokens there are.
//
// Threading: any thread. Ownership: callers share their tenants with the authenticator. A Reload
// that fails changes nothing.
#ifndef RIVULET_SERVER_SECURITY_AUTHENTICATOR_H_
#define RIVULET_SERVER_SECURITY_AUTHENTICATOR_H_

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "server/security/caller.h"
#include "server/security/peer_names.h"
#include "server/security/token_file.h"

namespace rivulet {

class Authenticator {
 public:
  using WallClock = std::chrono::system_clock;

  // No tokens are asked for.
  Authenticator();
  // INVALID_ARGUMENT or NOT_FOUND names the file. `now` is for tests.
  static absl::StatusOr<std::unique_ptr<Authenticator>> FromFile(
      std::string path, std::function<WallClock::time_point()> now = &WallClock::now);

  bool asks_for_tokens() const { return !path_.empty(); }

  // Whether certificates of clients may stand for tokens, which takes mutual TLS.
  bool knows_certificates() const;

  // `authorization`: the value of that header, none without it. `peer`: of the client's
  // certificate; the first of them counts that the file has. A token counts before it, also one
  // that is not valid. UNAUTHENTICATED without either; PERMISSION_DENIED if it does not have the
  // scope.
  absl::StatusOr<CallerPtr> Admit(std::optional<std::string_view> authorization, Scope scope,
                                  const PeerNames& peer = {}) const;

  // Reads the file again: tokens that have left it are refused from now on.
  absl::Status Reload();

  // Tells the names of the tenants that are in the file, now and in each Reload before its tokens
  // count. Null: no more, and no call is under way. Nothing is told if no tokens are asked for.
  using TellTenants = std::function<void(std::set<std::string, std::less<>>)>;
  void OnTenants(TellTenants tell);

  // By name: of the tenants in the file, and of those that left it and have requests. None if no
  // tokens are asked for.
  std::vector<NamedTenantMetrics> metrics() const;

 private:
  struct Token {
    TokenFile::Token entry;
    CallerPtr caller;
  };
  // What the file says. Immutable.
  struct Known {
    std::vector<Token> tokens;
    std::map<std::string, CallerPtr> certificates;  // by name, as in PeerNames
    std::set<std::string, std::less<>> tenants;
  };
  explicit Authenticator(std::string path, std::function<WallClock::time_point()> now);
  std::shared_ptr<const Known> MakeKnown(const TokenFile& file);
  std::shared_ptr<const Known> known() const;
  absl::StatusOr<CallerPtr> Find(std::string_view token) const;
  absl::StatusOr<CallerPtr> FindPeer(const PeerNames& peer) const;
  std::shared_ptr<Tenant> TenantOf(const TokenFile::TenantEntry& entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const std::function<WallClock::time_point()> now_;
  const CallerPtr anyone_;  // of a server that asks for no tokens
  Mutex reload_mutex_;      // taken before the other
  TellTenants tell_ ABSL_GUARDED_BY(reload_mutex_);
  mutable Mutex mutex_;
  std::shared_ptr<const Known> known_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Tenant>> tenants_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SECURITY_AUTHENTICATOR_H_
