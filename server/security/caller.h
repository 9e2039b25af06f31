// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_SECURITY_CALLER_H_
#define RIVULET_SERVER_SECURITY_CALLER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "server/security/tenant.h"

namespace rivulet {

// What a token allows.
enum class Scope : uint8_t {
  kGenerate,  // generate, score, tokenize, describe the model
  kSessions,  // list, create, change and delete the tenant's sessions
  kMetrics,   // read /metrics, which tells of all tenants
  kAdmin,     // change /loglevel
};
inline constexpr std::array kScopeNames = {"generate", "sessions", "metrics", "admin"};

class Scopes {
 public:
  static Scopes All() { return Scopes((1u << kScopeNames.size()) - 1); }
  Scopes() = default;
  void Add(Scope scope) { bits_ |= Bit(scope); }
  bool Has(Scope scope) const { return (bits_ & Bit(scope)) != 0; }

 private:
  explicit Scopes(uint32_t bits) : bits_(bits) {}
  static uint32_t Bit(Scope scope) { return 1u << static_cast<uint32_t>(scope); }
  uint32_t bits_ = 0;
};

// Who sent a request: a valid token, or any client of a server that asks for none. Immutable, but
// for the tenant's counters. Any thread.
struct Caller {
  std::shared_ptr<Tenant> tenant;  // never null
  Scopes scopes;
  std::string token_name;  // what the file calls the token, for logs; never the token
};
using CallerPtr = std::shared_ptr<const Caller>;

}  // namespace rivulet

#endif  // RIVULET_SERVER_SECURITY_CALLER_H_
