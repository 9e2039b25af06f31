// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/plan.h"

#include <algorithm>
#include <utility>

#include "server/scheduler/fair_share.h"

namespace rivulet {
namespace {

// A step that shares its budget among prompts gives each at least so many chunks, so that what a
// piece costs beside its tokens is small.
constexpr uint32_t kSmallPieceChunks = 4;

// The most tokens of a prompt that can run in one step.
uint32_t LongestPiece(const RowView& row) {
  return row.to_cut == 0 ? row.prompt_left : std::min(row.prompt_left, row.to_cut);
}

// The tokens of a prompt's next piece, given its share: up to the last chunk border that the share
// reaches, if it reaches one.
uint32_t PieceTokens(const RowView& row, uint32_t share, size_t fold_interval) {
  if (LongestPiece(row) <= share) return LongestPiece(row);
  const uint32_t to_border = static_cast<uint32_t>(fold_interval - row.position % fold_interval);
  if (share < to_border) return share;
  return share - static_cast<uint32_t>((row.position + share) % fold_interval);
}

// The prompts that take part in this step, those whose turn began first before the others: as many
// as can have a piece that is worth reading and writing a state for.
std::vector<size_t> ChoosePrompts(std::span<const RowView> rows, std::vector<size_t> prompts,
                                  uint32_t budget, size_t fold_interval) {
  const auto small_piece = static_cast<uint32_t>(kSmallPieceChunks * fold_interval);
  std::stable_sort(prompts.begin(), prompts.end(),
                   [&](size_t a, size_t b) { return rows[a].last_turn < rows[b].last_turn; });
  size_t chosen = 0;
  for (uint32_t filled = 0; chosen < prompts.size() && filled < budget; ++chosen) {
    filled += std::min(LongestPiece(rows[prompts[chosen]]), small_piece);
  }
  prompts.resize(chosen);
  return prompts;
}

std::vector<PlannedRow> SharePrompts(std::span<const RowView> rows, std::vector<size_t> prompts,
                                     uint32_t budget, size_t fold_interval) {
  // The shortest first: what they leave of their share is there for the longer ones.
  std::stable_sort(prompts.begin(), prompts.end(), [&](size_t a, size_t b) {
    return LongestPiece(rows[a]) < LongestPiece(rows[b]);
  });
  std::vector<PlannedRow> pieces;
  for (size_t i = 0; i < prompts.size() && budget > 0; ++i) {
    const uint32_t share =
        std::max<uint32_t>(1, budget / static_cast<uint32_t>(prompts.size() - i));
    const uint32_t tokens = PieceTokens(rows[prompts[i]], share, fold_interval);
    pieces.push_back({prompts[i], tokens});
    budget -= std::min(budget, tokens);
  }
  return pieces;
}

// A tenant's prompts share what it gets of the budget.
std::vector<PlannedRow> PromptPieces(std::span<const RowView> rows,
                                     const std::vector<size_t>& prompts, uint32_t budget,
                                     size_t fold_interval) {
  if (budget == 0) return {};
  const std::vector<TenantRows> groups = GroupByTenant(rows, prompts);
  std::vector<Claim> claims;
  for (const TenantRows& group : groups) {
    uint64_t tokens = 0;
    for (const size_t row : group.rows) tokens += LongestPiece(rows[row]);
    claims.push_back({tokens, group.weight});
  }
  std::vector<PlannedRow> pieces;
  const std::vector<uint64_t> shares = ShareByWeight(budget, claims);
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto share = static_cast<uint32_t>(shares[i]);
    const auto own = SharePrompts(rows, ChoosePrompts(rows, groups[i].rows, share, fold_interval),
                                  share, fold_interval);
    pieces.insert(pieces.end(), own.begin(), own.end());
  }
  // In the order of their turns: the next step goes by it.
  std::sort(pieces.begin(), pieces.end(), [&](const PlannedRow& a, const PlannedRow& b) {
    return std::pair(rows[a.row].last_turn, a.row) < std::pair(rows[b.row].last_turn, b.row);
  });
  return pieces;
}

}  // namespace

StepChoice PlanStep(TimePoint now, std::span<const RowView> rows, const StepCost& cost,
                    const PlanLimits& limits) {
  StepChoice choice;
  std::vector<size_t> decode, prompts;
  decode.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].deadline <= now) {
      choice.expired.push_back(i);
    } else if (rows[i].outbox_full) {
      continue;
    } else if (rows[i].prompt_left > 0) {
      prompts.push_back(i);
    } else {
      decode.push_back(i);
    }
  }
  const std::vector<size_t> run = ShareDecodeRows(rows, std::move(decode), prompts, cost);
  choice.run.reserve(run.size());
  for (const size_t row : run) choice.run.push_back({row, 1});
  if (prompts.empty()) return choice;
  PlanLimits allowed = limits;
  // Many prompts of one tenant do not slow down another's streams more than one would.
  if (HasSeveralTenants(rows)) allowed.most_prompt_share = limits.prompt_share;
  const uint32_t budget = cost.PromptTokens(choice.run.size(), prompts.size(), allowed);
  const auto pieces = PromptPieces(rows, prompts, budget, cost.fold_interval());
  choice.run.insert(choice.run.end(), pieces.begin(), pieces.end());
  return choice;
}

}  // namespace rivulet
