// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One of a request's n completions while it grows: its session, its text, and the rules by which it
// ends.
//
// Text and stop strings are handled here, in Commit, and not where the stream is drained
// (docs/architecture.md#one-token says why). The outbox gets complete UTF-8.
//
// Threading: engine thread only.
#ifndef RIVULET_SERVER_SCHEDULER_COMPLETION_H_
#define RIVULET_SERVER_SCHEDULER_COMPLETION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model_loader/tokenizer.h"
#include "server/drafts/drafter.h"
#include "server/grammar/token_grammar.h"
#include "server/scheduler/draft_budget.h"
#include "server/scheduler/request.h"
#include "server/scheduler/stream_message.h"
#include "server/session/session.h"
#include "server/text/detokenizer.h"
#include "server/text/stop_matcher.h"

namespace rivulet {

class Completion {
 public:
  // `request`, `stop_ids` (all that end it, EOS included) and `tokenizer` (null: no text) outlive
  // it. `starts_text`: as of Detokenizer.
  Completion(const Request& request, const std::vector<uint32_t>& stop_ids,
             const Tokenizer* tokenizer, bool starts_text, uint32_t index);
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  // Continues from this session.
  void Start(std::unique_ptr<Session> session) { session_ = std::move(session); }
  // REQUIRES: started and not finished.
  Session& session() const { return *session_; }
  // Null if it was never started.
  std::unique_ptr<Session> TakeSession() { return std::move(session_); }
  bool finished() const { return finish_reason_ != FinishReason::kNone; }
  FinishReason finish_reason() const { return finish_reason_; }
  uint32_t generated() const { return generated_; }
  uint32_t index() const { return index_; }

  // How to sample the token after those that `session` holds (the request's prompt session before
  // Start), and after `promised` more that a step in flight will sample.
  SampleSpec Spec(Session& session, uint32_t promised = 0) const;

  // Adds a sampled token to the session, also if it is EOS or a stop id. The message has its text,
  // and the finish reason if the token was the last one. `guessed`: a draft was this token.
  // REQUIRES: started and not finished.
  StreamMessage Accept(uint32_t token, Logprobs logprob, bool guessed);

  // A step checks so many drafts. Before the tokens that it gives are accepted.
  void CountDrafts(size_t drafts) { drafted_ += static_cast<uint32_t>(drafts); }

  // Ends it without another token: the message has the text that was held back.
  StreamMessage Finish(FinishReason reason);

  // The owner's: for its metrics, how many steps in flight hold its row, what guesses its next
  // tokens (null: nothing does), the guesses that the step in flight checks, and so on.
  TimePoint last_token_time;
  uint32_t in_flight = 0;
  std::unique_ptr<Drafter> drafter;
  std::vector<uint32_t> drafts;
  DraftBudget draft_budget = DraftBudget::OfRow();
  bool state_lost = false;  // a step of its row failed
  uint64_t last_turn = 0;   // as RowView::last_turn

 private:
  bool EndsAt(uint32_t token) const;
  bool IsComplete(uint32_t token);
  std::string TextOf(uint32_t token);
  void End(FinishReason reason, StreamMessage& message);

  const Request& request_;
  const std::vector<uint32_t>& stop_ids_;
  const uint32_t index_;
  std::unique_ptr<Session> session_;
  std::optional<Detokenizer> detokenizer_;
  StopMatcher matcher_;
  std::optional<GrammarMatcher> grammar_;
  TokenCounts turn_counts_;  // if the request's penalties need them
  uint32_t generated_ = 0;
  uint32_t drafted_ = 0, guessed_ = 0;
  FinishReason finish_reason_ = FinishReason::kNone;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_COMPLETION_H_
