// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Whose states go where room is needed. A tenant that holds no more than an equal share of what all
// tenants hold together loses nothing to others; of those that hold more, what was used least
// recently, or is worth least, goes first. Where none holds more, all count as one. So one tenant
// cannot push out what another has kept, and one that is alone has everything.
//
// Threading: plain values.
#ifndef RIVULET_SERVER_SESSION_TENANT_SHARES_H_
#define RIVULET_SERVER_SESSION_TENANT_SHARES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace rivulet {

using TenantNames = std::set<std::string, std::less<>>;
using TenantAmounts = std::map<std::string, uint64_t, std::less<>>;

// What all tenants hold, one amount after the other. A tenant that holds nothing does not count.
class EqualShare {
 public:
  void Add(uint64_t amount) {
    total_ += amount;
    holders_ += amount > 0 ? 1 : 0;
  }
  // Whether an amount that was added is more than an equal share.
  bool IsBelow(uint64_t amount) const { return amount > 0 && amount > total_ / holders_; }

 private:
  uint64_t total_ = 0, holders_ = 0;
};

// Those that hold more than an equal share.
inline TenantNames OverEqualShare(const TenantAmounts& held) {
  EqualShare share;
  for (const auto& [tenant, amount] : held) share.Add(amount);
  TenantNames over;
  for (const auto& [tenant, amount] : held) {
    if (share.IsBelow(amount)) over.insert(tenant);
  }
  return over;
}

// `tenants`: null for all.
inline bool IsAmong(const TenantNames* tenants, std::string_view tenant) {
  return tenants == nullptr || tenants->contains(tenant);
}

// What divides the prefix cache: tenants share nothing in it, even if they choose the same salt.
// Names of tenants are single lines.
inline std::string SaltOf(std::string_view tenant, std::string_view salt) {
  return std::string(tenant) + "\n" + std::string(salt);
}
// A salt that is of no tenant is that of the tenant without a name.
inline std::string_view TenantOfSalt(std::string_view salt) {
  const size_t end = salt.find('\n');
  return end == std::string_view::npos ? std::string_view() : salt.substr(0, end);
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_SESSION_TENANT_SHARES_H_
