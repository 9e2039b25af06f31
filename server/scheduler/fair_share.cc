// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/fair_share.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace rivulet {
namespace {

double WeightOf(const std::vector<TenantRows>& groups) {
  return std::accumulate(groups.begin(), groups.end(), 0.0,
                         [](double sum, const TenantRows& group) { return sum + group.weight; });
}

// How long a step may take; infinite while times are not known.
double LongestStep(const std::vector<TenantRows>& groups, const StepCost& cost) {
  const double all = WeightOf(groups);
  double longest = std::numeric_limits<double>::infinity();
  for (const TenantRows& group : groups) {
    const double alone = cost.DecodeSeconds(group.rows.size());
    if (alone > 0) longest = std::min(longest, alone * all / group.weight);
  }
  return longest;
}

// The most rows, at least `least`, that a step of so many seconds has time for.
size_t MostRows(size_t least, size_t all, double seconds, const StepCost& cost) {
  while (least < all) {
    const size_t middle = least + (all - least + 1) / 2;
    if (cost.DecodeSeconds(middle) <= seconds) {
      least = middle;
    } else {
      all = middle - 1;
    }
  }
  return least;
}

// Those that decode, and one row for each tenant that has only prompts.
std::vector<TenantRows> WithPrompts(std::vector<TenantRows> groups,
                                    const std::vector<TenantRows>& prompts) {
  const size_t decoding = groups.size();
  for (const TenantRows& prompt : prompts) {
    const auto known =
        std::find_if(groups.begin(), groups.begin() + static_cast<ptrdiff_t>(decoding),
                     [&](const TenantRows& group) { return group.tenant == prompt.tenant; });
    if (known != groups.begin() + static_cast<ptrdiff_t>(decoding)) continue;
    groups.push_back({prompt.tenant, prompt.weight, {prompt.rows.front()}});
  }
  return groups;
}

// Those that ran longest ago.
void KeepOldest(std::span<const RowView> rows, size_t count, std::vector<size_t>& indices) {
  const auto before = [&](size_t a, size_t b) { return rows[a].last_turn < rows[b].last_turn; };
  std::stable_sort(indices.begin(), indices.end(), before);
  indices.resize(std::min(count, indices.size()));
}

}  // namespace

bool HasSeveralTenants(std::span<const RowView> rows) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const RowView& row) { return row.tenant != rows.front().tenant; });
}

std::vector<TenantRows> GroupByTenant(std::span<const RowView> rows,
                                      const std::vector<size_t>& indices) {
  std::vector<TenantRows> groups;
  for (const size_t index : indices) {
    const RowView& row = rows[index];
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const TenantRows& known) { return known.tenant == row.tenant; });
    if (group == groups.end()) {
      group = groups.insert(groups.end(), {row.tenant, static_cast<double>(row.weight), {}});
    }
    group->rows.push_back(index);
  }
  return groups;
}

std::vector<uint64_t> ShareByWeight(uint64_t amount, const std::vector<Claim>& claims) {
  std::vector<size_t> order(claims.size());
  std::iota(order.begin(), order.end(), 0);
  const auto relative = [&](size_t i) {
    return static_cast<double>(claims[i].wants) / claims[i].weight;
  };
  // Those that want the least of what they might have leave something to the others.
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return relative(a) < relative(b); });
  double weights = 0;
  for (const Claim& claim : claims) weights += claim.weight;
  std::vector<uint64_t> shares(claims.size());
  for (const size_t i : order) {
    const double share = static_cast<double>(amount) * claims[i].weight / weights;
    shares[i] = std::min(claims[i].wants, std::max<uint64_t>(1, static_cast<uint64_t>(share)));
    amount -= std::min(amount, shares[i]);
    weights -= claims[i].weight;
  }
  return shares;
}

std::vector<size_t> ShareDecodeRows(std::span<const RowView> rows, std::vector<size_t> decode,
                                    const std::vector<size_t>& prompts, const StepCost& cost) {
  if (!HasSeveralTenants(rows)) return decode;
  std::vector<TenantRows> groups = GroupByTenant(rows, decode);
  const std::vector<TenantRows> all = WithPrompts(groups, GroupByTenant(rows, prompts));
  if (all.size() < 2) return decode;
  const size_t most = MostRows(groups.size(), decode.size(), LongestStep(all, cost), cost);
  std::vector<Claim> claims;
  for (const TenantRows& group : groups) claims.push_back({group.rows.size(), group.weight});
  const std::vector<uint64_t> shares = ShareByWeight(most, claims);
  std::vector<size_t> run;
  for (size_t i = 0; i < groups.size(); ++i) {
    KeepOldest(rows, shares[i], groups[i].rows);
    run.insert(run.end(), groups[i].rows.begin(), groups[i].rows.end());
  }
  std::sort(run.begin(), run.end());
  return run;
}

}  // namespace rivulet
