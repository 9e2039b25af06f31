// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Whose states go where room is needed: those of the tenant that holds the most (max-min fairness),
// and of one tenant what was used least recently, or is worth least. None takes from a tenant that
// holds less than itself, with what it asks for. So one tenant cannot push out what another has
// kept, however many others hold a little, and one that is alone has everything.
//
// Threading: plain values.
#ifndef RIVULET_SERVER_SESSION_TENANT_SHARES_H_
#define RIVULET_SERVER_SESSION_TENANT_SHARES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rivulet {

using TenantNames = std::set<std::string, std::less<>>;
using TenantAmounts = std::map<std::string, uint64_t, std::less<>>;

// The order in which tenants lose. What it was made of outlives it.
class Losers {
 public:
  // `held`: what each tenant holds, with what `tenant` asks for. Without one, no tenant asks, and
  // all may lose.
  explicit Losers(const TenantAmounts& held,
                  std::optional<std::string_view> tenant = std::nullopt) {
    const auto own = tenant.has_value() ? held.find(*tenant) : held.end();
    const uint64_t least = own == held.end() ? 0 : own->second;
    for (const auto& [name, amount] : held) {
      if (amount > 0 && amount >= least) order_.push_back({amount, name});
    }
    std::sort(order_.rbegin(), order_.rend());
  }

  // First those that hold the most; where they have nothing to give, twice as many of the largest,
  // and so on. Null when all have been asked. Valid until the next call.
  const TenantNames* Next() {
    if (names_.size() == order_.size()) return nullptr;
    size_t count = std::min(order_.size(), std::max<size_t>(1, 2 * names_.size()));
    while (count < order_.size() && order_[count].first == order_[count - 1].first) ++count;
    for (size_t i = names_.size(); i < count; ++i) names_.insert(std::string(order_[i].second));
    return &names_;
  }

 private:
  std::vector<std::pair<uint64_t, std::string_view>> order_;  // the largest first
  TenantNames names_;                                         // the first of these
};

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
