// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How tenants share steps and the queue. Pure functions, as the planner's.
//
// The rule for rows that decode: no tenant's streams get slower than they would be with its share
// of the machine for them alone, and no step is shorter than that asks for. With k tenants of equal
// weight, a step takes at most k times what the rows of the smallest of them take alone. Tenants
// with fewer rows than their share of such a step run them all; the others' take turns. So one
// stream beside a thousand runs at half its speed, and the rows beside it still fill a step as long
// as two of its own, which is enough to make good use of each read of the weights.
//
// Which rows run together never changes a bit of the output.
#ifndef RIVULET_SERVER_SCHEDULER_FAIR_SHARE_H_
#define RIVULET_SERVER_SCHEDULER_FAIR_SHARE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/scheduler/plan.h"
#include "server/scheduler/step_cost.h"

namespace rivulet {

bool HasSeveralTenants(std::span<const RowView> rows);

// The rows of one tenant, as indices into the rows of a plan.
struct TenantRows {
  const Tenant* tenant = nullptr;
  double weight = 1;
  std::vector<size_t> rows;  // in the order given
};
// In the order in which tenants appear.
std::vector<TenantRows> GroupByTenant(std::span<const RowView> rows,
                                      const std::vector<size_t>& indices);

// Shares `amount` among parties by their weights: none gets more than it wants, and what one leaves
// goes to the others. Each gets at least 1 if it wants any, so the sum may be over `amount`.
struct Claim {
  uint64_t wants = 0;
  double weight = 1;
};
std::vector<uint64_t> ShareByWeight(uint64_t amount, const std::vector<Claim>& claims);

// Which of the rows `decode` run: all of them if one tenant has all rows, else as the rule says.
// Those of a tenant that ran longest ago come first. In the order given. A tenant that has only
// some of `prompts` counts as one with a single row that decodes, so that its first token does not
// wait for long steps of others.
std::vector<size_t> ShareDecodeRows(std::span<const RowView> rows, std::vector<size_t> decode,
                                    const std::vector<size_t>& prompts, const StepCost& cost);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_FAIR_SHARE_H_
