// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Which states within its turns a request that runs keeps for rewinds, as far as there is room.
#include <algorithm>

#include "server/scheduler/active_request.h"

namespace rivulet {
namespace {

// Of the pages of a session's borders, together: 4 bytes each.
constexpr uint64_t kMostPageNumbers = uint64_t{1} << 21;

}  // namespace

bool ActiveRequest::HasNewBorder(int row) const {
  return context_.options.keep_borders > 0 && SessionOf(row).has_new_border();
}

size_t ActiveRequest::NewBorders(int row, uint32_t tokens) const {
  const size_t behind = HasNewBorder(row) ? 1 : 0;
  if (row != kPromptRow) return behind;
  return behind + prompt_->BordersWithin(tokens, PromptBorders());
}

// Borders of the prompt at multiples of this are kept; 0: those where steps end.
uint64_t ActiveRequest::PromptBorders() const {
  const SchedulerOptions& options = context_.options;
  if (options.keep_borders == 0 || prompt_->kept().empty()) return 0;
  if (options.prompt_borders != kAutomaticBorders) return options.prompt_borders;
  return context_.capacity.fold_bases ? context_.capacity.fold_interval : 0;
}

// Each holds the numbers of its pages beside its slots, which takes memory where contexts are long.
size_t ActiveRequest::MostBorders(const Session& session) const {
  if (context_.options.keep_borders != kAutomaticBorders) return context_.options.keep_borders;
  uint64_t pages = 1;
  for (size_t kind = 0; kind < session.page_kinds(); ++kind) pages += session.pages(kind);
  return std::max<size_t>(1, kMostPageNumbers / pages);
}

// As many as there is room for.
BorderRule ActiveRequest::BordersOf(const Session& session, uint32_t tokens) {
  const uint64_t longest = LongestContext(*request_, context_tokens_);
  BorderRule rule{PromptBorders(), MostBorders(session)};
  if (!context_.capacity.fold_bases) return {};
  for (;; rule.every *= 2) {
    StateNeed need;
    need.bases = session.BordersWithin(tokens, rule.every);
    if (need.bases == 0) break;
    need.AddPages(session.page_kinds(),
                  [&](size_t kind) { return session.PagesOfBorders(kind, tokens, longest); });
    if (need.bases > rule.most) continue;
    if (context_.border_room.Take(need)) return rule;
    // Every other one of them goes.
    context_.metrics.borders_dropped.Add(need.bases -
                                         session.BordersWithin(tokens, 2 * rule.every));
  }
  return {};
}

// Only if its base and pages are free beside all that runs may need. A base that is shared already
// counts too: completions that share one need a new one for each but the last. Without room, some
// is made for the next border, so that those near the end are kept.
void ActiveRequest::KeepBorder(Session& session) {
  const uint64_t tokens = LongestContext(*request_, context_tokens_);
  StateNeed before, after;
  before.AddMissing(session, tokens);
  session.KeepBorder(MostBorders(session));
  after.AddMissing(session, tokens);
  StateNeed taken = after.Beyond(before);
  taken.bases = 1;
  if (context_.border_room.Take(taken)) return;
  context_.metrics.borders_dropped.Add(session.TakeBorderBack());
}

}  // namespace rivulet
