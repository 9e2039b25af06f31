// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/state_need.h"

#include <algorithm>

namespace rivulet {

bool StateNeed::nothing() const {
  return slots == 0 && std::all_of(pages.begin(), pages.end(), [](uint64_t n) { return n == 0; });
}

uint64_t LongestContext(const Request& request, uint64_t context_tokens) {
  return context_tokens + request.prompt.size() + request.max_tokens;
}

void StateNeed::AddWhole(const StateCapacity& capacity, uint64_t sessions, uint64_t tokens) {
  AddPages(capacity.pages.size(), [&](size_t kind) {
    return sessions * MostPages(capacity.pages[kind].kind, tokens, kLongestSegment);
  });
}

void StateNeed::AddMissing(const Session& session, uint64_t tokens) {
  AddPages(session.page_kinds(), [&](size_t kind) { return session.MissingPages(kind, tokens); });
}

// Several completions share the prompt's pages until each has replaced them, so these count once
// more.
StateNeed WholeNeed(const StateCapacity& capacity, const Request& request,
                    uint64_t context_tokens) {
  StateNeed need;
  need.slots = request.completions;
  need.AddWhole(capacity, request.completions + (request.completions > 1 ? 1 : 0),
                LongestContext(request, context_tokens));
  return need;
}

}  // namespace rivulet
