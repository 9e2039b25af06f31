// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/state_need.h"

#include <algorithm>

namespace rivulet {

StateNeed StateNeed::Beyond(const StateNeed& less) const {
  const auto beyond = [](uint64_t a, uint64_t b) { return a - std::min(a, b); };
  StateNeed need;
  need.tails = beyond(tails, less.tails);
  need.bases = beyond(bases, less.bases);
  need.AddPages(pages.size(), [&](size_t kind) {
    return beyond(pages[kind], kind < less.pages.size() ? less.pages[kind] : 0);
  });
  return need;
}

bool StateNeed::Take(const StateNeed& need) {
  if (!need.Beyond(*this).nothing()) return false;
  *this = Beyond(need);
  return true;
}

uint64_t StateNeed::bytes(const StateCapacity& capacity) const {
  uint64_t bytes = tails * capacity.tail_bytes + bases * capacity.base_bytes;
  for (size_t kind = 0; kind < pages.size(); ++kind) {
    bytes += pages[kind] * capacity.pages[kind].page_bytes;
  }
  return bytes;
}

bool StateNeed::nothing() const {
  return tails == 0 && bases == 0 &&
         std::all_of(pages.begin(), pages.end(), [](uint64_t n) { return n == 0; });
}

bool StateNeed::Within(const StateCapacity& capacity, const StateNeed& added) const {
  if (tails > capacity.tail_slots + added.tails) return false;
  if (bases > capacity.base_slots + added.bases) return false;
  for (size_t kind = 0; kind < pages.size(); ++kind) {
    const uint64_t more = kind < added.pages.size() ? added.pages[kind] : 0;
    if (pages[kind] > capacity.pages[kind].slots + more) return false;
  }
  return true;
}

uint64_t NewTokens(const Request& request) {
  const uint64_t prompt = request.prompt.size();
  const uint64_t own = std::min<uint64_t>(ContextTokens(request) + prompt, TokenSequence::kBlock);
  const size_t notes = request.notes == nullptr ? 0 : request.notes->bytes();
  return prompt + (request.completions - 1) * own + TokensOfNotes(notes);
}

uint64_t LongestContext(const Request& request, uint64_t context_tokens) {
  return context_tokens + request.prompt.size() + request.max_tokens;
}

void StateNeed::AddWhole(const StateCapacity& capacity, uint64_t sessions, uint64_t tokens) {
  AddPages(capacity.pages.size(), [&](size_t kind) {
    return sessions * MostPages(capacity.pages[kind].kind, tokens, kLongestSegment);
  });
}

void StateNeed::AddForks(const StateCapacity& capacity, uint32_t completions, uint64_t tokens) {
  if (completions == 1) return;
  tails += completions - 1;
  bases += completions - 1;
  AddWhole(capacity, completions, tokens);
}

void StateNeed::AddMissing(const Session& session, uint64_t tokens) {
  tails += session.missing_tails();
  bases += session.missing_bases();
  AddPages(session.page_kinds(), [&](size_t kind) { return session.MissingPages(kind, tokens); });
}

void StateNeed::AddPoint(const StatePoint& point) {
  ++bases;
  AddPages(point.pages.size(), [&](size_t kind) { return point.pages[kind].pages(); });
}

// Several completions share the prompt's pages until each has replaced them, so these count once
// more.
StateNeed WholeNeed(const StateCapacity& capacity, const Request& request,
                    uint64_t context_tokens) {
  StateNeed need;
  need.tails = need.bases = request.completions;
  need.AddWhole(capacity, request.completions + (request.completions > 1 ? 1 : 0),
                LongestContext(request, context_tokens));
  return need;
}

}  // namespace rivulet
