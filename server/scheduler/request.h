// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A request as the scheduler takes it: checked, tokenized, every default filled in. server/service
// makes it from a proto message; nothing in it is a proto type.
#ifndef RIVULET_SERVER_SCHEDULER_REQUEST_H_
#define RIVULET_SERVER_SCHEDULER_REQUEST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops/sampling/sampling.h"
#include "server/scheduler/outbox.h"
#include "server/scheduler/plan.h"
#include "server/security/tenant.h"
#include "server/session/session_table.h"

namespace rivulet {

class TokenGrammar;

// Key of the status payload that says that a request ended because the device failed.
inline constexpr char kDeviceLostPayload[] = "rivulet.device_lost";

enum class RequestKind : uint8_t { kGenerate, kScore };

struct StopRules {
  std::vector<std::string> strings;  // StopMatcher::Validate is OK
  std::vector<uint32_t> token_ids;
  bool ignore_eos = false;
  bool include_stop = false;
  uint32_t min_tokens = 0;
};

// How far the states of a prompt that runs have been kept, for requests that wait for one of them.
struct PrefillProgress {
  uint64_t kept = 0;  // the position of the last one
  bool over = false;  // there will be no other
};

struct Request {
  uint64_t id = 0;  // Scheduler::NewId
  RequestKind kind = RequestKind::kGenerate;
  // The session that the prompt continues: leased for a turn (kGenerate), or for reading (kScore,
  // one completion, which leaves it as it was). Not held: a context of its own.
  SessionLease session;
  std::vector<uint32_t> prompt;  // empty only if the session holds tokens
  // The session forgets what it holds when this turn begins: the prompt is its whole context.
  bool begins_anew = false;
  // Kept with the session once the turn has begun.
  std::shared_ptr<const SessionNotes> notes;
  // Who shares the machine with others; null: the one tenant of a server without tokens.
  std::shared_ptr<Tenant> tenant;
  // Requests share kept states only with those of the same salt.
  std::string cache_salt;
  uint32_t completions = 1;   // at least one; the API's n. The session goes on with the first
  bool keep_choices = false;  // the others become sessions
  uint32_t max_tokens = 0;    // of each completion; 0 processes the prompt only
  SamplingParams sampling;    // with the seed
  StopRules stop;
  std::shared_ptr<TokenGrammar> grammar;  // that each completion's text matches; null: any text
  uint32_t logprobs = 0;                  // 0: none; n: of each sampled token, with the n best
  // Log-probabilities of the prompt's tokens that have a predecessor, delivered together before any
  // token.
  bool score_prompt = false;
  uint32_t score_top = 0;
  TimePoint arrival;
  TimePoint deadline = kNoDeadline;
  std::shared_ptr<Outbox> outbox;

  // The scheduler's: where it stands among those that wait.
  double place = 0;
  // Likewise: the request waits until the state at `awaited_border` is kept.
  std::shared_ptr<const PrefillProgress> awaited;
  uint64_t awaited_border = 0;
  bool has_awaited = false;  // one was kept; it does not wait for a second
};

// Empty: of a server that asks for no tokens.
inline std::string NameOfTenant(const Request& request) {
  return request.tenant == nullptr ? "" : request.tenant->name();
}

// Tokens that its prompt continues.
inline uint64_t ContextTokens(const Request& request) {
  return request.session.held() && !request.begins_anew ? request.session.tokens() : 0;
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_REQUEST_H_
