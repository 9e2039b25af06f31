// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The most slots that a request can take, known before it starts: a base and a tail for each
// completion, and of each kind of pages as many as its longest context needs. The scheduler admits
// a request only when all of that is free, so no row ever waits for a page that is never released.
//
// Threading: pure functions. Those that take a Session: engine thread only.
#ifndef RIVULET_SERVER_SCHEDULER_STATE_NEED_H_
#define RIVULET_SERVER_SCHEDULER_STATE_NEED_H_

#include <cstdint>
#include <vector>

#include "server/engine/engine.h"
#include "server/scheduler/request.h"
#include "server/session/session.h"

namespace rivulet {

struct StateNeed {
  uint64_t tails = 0;
  uint64_t bases = 0;
  std::vector<uint64_t> pages;  // of each kind of StateCapacity::pages
  uint64_t tokens = 0;          // whose ids it holds

  // What of it is more than in `less`; without tokens.
  StateNeed Beyond(const StateNeed& less) const;
  // Takes `need` away if there is as much of it.
  bool Take(const StateNeed& need);
  // Of slots and pages.
  uint64_t bytes(const StateCapacity& capacity) const;
  // No slots and no pages.
  bool nothing() const;
  // Whether there are as many slots and pages as `capacity` and `added` have together.
  bool Within(const StateCapacity& capacity, const StateNeed& added) const;
  bool Within(const StateCapacity& capacity) const { return Within(capacity, StateNeed()); }
  // Adds `count(kind)` pages of each kind.
  template <typename Count>
  void AddPages(size_t kinds, Count count) {
    pages.resize(kinds);
    for (size_t kind = 0; kind < kinds; ++kind) pages[kind] += count(kind);
  }
  // Adds the pages of `sessions` sessions that grow to `tokens` tokens and share none.
  void AddWhole(const StateCapacity& capacity, uint64_t sessions, uint64_t tokens);
  // Adds what a session's forks take for all but one of so many completions. These share the
  // prompt's pages until each has replaced them, so they count once more.
  void AddForks(const StateCapacity& capacity, uint32_t completions, uint64_t tokens);
  // Adds the slots and pages that `session` may still take while it grows to `tokens` tokens.
  void AddMissing(const Session& session, uint64_t tokens);
  // Adds what a point holds.
  void AddPoint(const StatePoint& point);
};

// The most tokens that the session of each completion will hold.
uint64_t LongestContext(const Request& request, uint64_t context_tokens);

// The tokens that the sessions of a request hold from its start, beyond those that its session
// holds already, and what its notes count as. Forks share what they can (TokenSequence).
uint64_t NewTokens(const Request& request);

// The need of a request whose session has no state yet for its `context_tokens` tokens.
StateNeed WholeNeed(const StateCapacity& capacity, const Request& request, uint64_t context_tokens);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_STATE_NEED_H_
