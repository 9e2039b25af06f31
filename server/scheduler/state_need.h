// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a request will take of the engine's slots at most, known before it starts: a tail for each
// completion, and of each kind of pages as many as its longest context asks for. The scheduler lets
// a request in only when all of that is there, so no row ever waits for a page that nobody gives
// back.
//
// Threading: pure functions; Session's methods make those that take one the engine thread's.
#ifndef RIVULET_SERVER_SCHEDULER_STATE_NEED_H_
#define RIVULET_SERVER_SCHEDULER_STATE_NEED_H_

#include <cstdint>
#include <vector>

#include "server/engine/engine.h"
#include "server/scheduler/request.h"
#include "server/session/session.h"

namespace rivulet {

struct StateNeed {
  uint32_t slots = 0;           // tails, each with a base
  std::vector<uint64_t> pages;  // of each kind of StateCapacity::pages

  bool nothing() const;
};

// Tokens that each completion's session will hold at most.
uint64_t LongestContext(const Request& request, uint64_t context_tokens);

// Of a request whose session is yet to be made, holding nothing of its `context_tokens` tokens.
StateNeed WholeNeed(const StateCapacity& capacity, const Request& request, uint64_t context_tokens);

// Adds the pages that `sessions` sessions take on their way to `tokens` tokens, sharing none.
void AddPages(const StateCapacity& capacity, uint64_t sessions, uint64_t tokens, StateNeed& need);

// Adds the pages that `session` may still take on its way to `tokens` tokens.
void AddMissing(const StateCapacity& capacity, const Session& session, uint64_t tokens,
                StateNeed& need);

// Of a fork of `session` on its way to `tokens` tokens, which shares the pages that are there.
StateNeed ForkNeed(const StateCapacity& capacity, const Session& session, uint64_t tokens);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_STATE_NEED_H_
