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

// Several completions share the prompt's pages until each has replaced them, so these count once
// more.
StateNeed WholeNeed(const StateCapacity& capacity, const Request& request,
                    uint64_t context_tokens) {
  StateNeed need;
  need.slots = request.completions;
  AddPages(capacity, request.completions + (request.completions > 1 ? 1 : 0),
           LongestContext(request, context_tokens), need);
  return need;
}

void AddPages(const StateCapacity& capacity, uint64_t sessions, uint64_t tokens, StateNeed& need) {
  need.pages.resize(capacity.pages.size());
  for (size_t kind = 0; kind < capacity.pages.size(); ++kind) {
    need.pages[kind] += sessions * MostPages(capacity.pages[kind].kind, tokens, kLongestSegment);
  }
}

void AddMissing(const StateCapacity& capacity, const Session& session, uint64_t tokens,
                StateNeed& need) {
  need.pages.resize(capacity.pages.size());
  for (size_t kind = 0; kind < capacity.pages.size(); ++kind) {
    need.pages[kind] += session.MissingPages(kind, tokens);
  }
}

StateNeed ForkNeed(const StateCapacity& capacity, const Session& session, uint64_t tokens) {
  StateNeed need;
  need.slots = 1;
  for (size_t kind = 0; kind < capacity.pages.size(); ++kind) {
    need.pages.push_back(session.MissingPagesInFork(kind, tokens));
  }
  return need;
}

}  // namespace rivulet
