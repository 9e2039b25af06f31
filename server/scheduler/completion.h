// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One of a request's n completions while it grows: its session, what its tokens say as text, and
// the rules by which it ends.
//
// Text and stop strings are decided here, on the engine thread in Commit, and not where the stream
// is drained: a stop string must end the row before the next step feeds another token, else which
// tokens a session holds would depend on how fast its client reads. It costs a fraction of a
// microsecond a token. What the outbox gets is finished UTF-8.
//
// Threading: engine thread only.
#ifndef RIVULET_SERVER_SCHEDULER_COMPLETION_H_
#define RIVULET_SERVER_SCHEDULER_COMPLETION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model_loader/tokenizer.h"
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

  // It goes on from here.
  void Start(std::unique_ptr<Session> session) { session_ = std::move(session); }
  // REQUIRES: started and not finished.
  Session& session() { return *session_; }
  // Null if it was never started.
  std::unique_ptr<Session> TakeSession() { return std::move(session_); }
  bool started() const { return session_ != nullptr; }
  bool finished() const { return finish_reason_ != FinishReason::kNone; }
  FinishReason finish_reason() const { return finish_reason_; }
  uint32_t generated() const { return generated_; }

  // How to sample the token after those that `session` holds (the request's prompt session before
  // Start).
  SampleSpec Spec(const Session& session) const;

  // A sampled token: belongs to the session from now on, EOS and stop ids too. The message has its
  // text, and the finish reason if it was the last one. REQUIRES: started and not finished.
  StreamMessage Accept(uint32_t token, Logprobs logprob);

  // Ends it without another token: the message has the text that was held back.
  StreamMessage Finish(FinishReason reason);

  TimePoint last_token_time;  // the scheduler's, for its metrics

 private:
  bool EndsAt(uint32_t token) const;
  std::string TextOf(uint32_t token);
  void End(FinishReason reason, StreamMessage& message);

  const Request& request_;
  const std::vector<uint32_t>& stop_ids_;
  const uint32_t index_;
  std::unique_ptr<Session> session_;
  std::optional<Detokenizer> detokenizer_;
  StopMatcher matcher_;
  TokenCounts turn_counts_;
  uint32_t generated_ = 0;
  FinishReason finish_reason_ = FinishReason::kNone;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_COMPLETION_H_
