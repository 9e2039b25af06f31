// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The file of --tokens: which bearer tokens are valid, and for whom. It has the hash of each token,
// never the token, so that reading it gives no access. docs/security.md describes it:
//
//   {"tenants": [{"name": "search", "weight": 2, "requests_per_minute": 600,
//                 "tokens_per_minute": 1000000, "max_requests": 64}],
//    "tokens": [{"name": "search backend", "sha256": "9f86d0...", "tenant": "search",
//                "scopes": ["generate", "sessions"], "expires": "2027-01-31T00:00:00Z"}],
//    "certificates": [{"uri": "spiffe://example.org/search", "tenant": "search"}]}
//
// Tokens are random (docs/security.md says how to make one), so one round of SHA-256 is enough.
//
// Pure functions; any thread.
#ifndef RIVULET_SERVER_SECURITY_TOKEN_FILE_H_
#define RIVULET_SERVER_SECURITY_TOKEN_FILE_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/security/caller.h"
#include "server/security/tenant.h"

namespace rivulet {

using Sha256Digest = std::array<uint8_t, 32>;
Sha256Digest Sha256(std::string_view bytes);

struct TokenFile {
  struct TenantEntry {
    std::string name;
    TenantLimits limits;
  };
  struct Token {
    std::string name;
    Sha256Digest digest;
    size_t tenant = 0;  // index into tenants
    Scopes scopes;
    std::optional<std::chrono::system_clock::time_point> expires;
  };
  // Clients whose certificate has this name, with mutual TLS.
  struct Certificate {
    std::string name;
    std::string peer;  // as in PeerNames
    size_t tenant = 0;
    Scopes scopes;
  };
  std::vector<TenantEntry> tenants;
  std::vector<Token> tokens;  // one at least, or a certificate
  std::vector<Certificate> certificates;
};

inline constexpr size_t kMostTenants = 1024;
inline constexpr size_t kMostTokens = 4096;  // and certificates

// INVALID_ARGUMENT names the entry and the field. Unknown fields are refused, as a misspelt limit
// would be no limit, and so are fields that an object has twice.
absl::StatusOr<TokenFile> ParseTokenFile(std::string_view json);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SECURITY_TOKEN_FILE_H_
