// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A request that holds state slots: first its prompt's one row, then a row for each completion.
//
// The prompt is processed once. One completion: the prompt's last step samples its first token.
// More than one: all of the prompt but its last token is processed, the session is forked, and each
// fork feeds that last token itself and samples with its own index; so a completion's bits do not
// depend on n.
//
// A turn of a session takes the session's state out of its lease and gives it back when it ends,
// before its client is told. However it ends, but for a failed step, the session then holds the
// whole prompt and the tokens that were generated, the last of them pending: so what a cancelled
// turn leaves behind does not depend on how far its prompt had come. A failed step leaves no state
// that could be gone on with: the session is dropped.
//
// A row that fails ends its completion alone; a prompt that fails ends the request.
// Threading: engine thread only.
#ifndef RIVULET_SERVER_SCHEDULER_ACTIVE_REQUEST_H_
#define RIVULET_SERVER_SCHEDULER_ACTIVE_REQUEST_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "server/engine/step_plan.h"
#include "server/metrics/metrics.h"
#include "server/scheduler/completion.h"
#include "server/scheduler/plan.h"
#include "server/scheduler/request.h"
#include "server/scheduler/state_need.h"
#include "server/session/session.h"

namespace rivulet {

// What all requests share; outlives them.
struct RequestContext {
  const Tokenizer* tokenizer = nullptr;  // null: token ids only
  std::vector<uint32_t> eos_ids;
  Clock::duration stall_limit = std::chrono::hours(1);
  Metrics* metrics = nullptr;
  size_t fold_interval = 0;  // the engine's
  // Outboxes that the dispatcher must be told of at the end of this plan or commit.
  std::vector<std::shared_ptr<Outbox>> ready;
};

class ActiveRequest {
 public:
  static constexpr int kPromptRow = -1;

  // `session`: what the prompt continues, or a new one. `turn`: as of
  // RowView::last_turn, of its admission.
  ActiveRequest(RequestContext& context, std::unique_ptr<Request> request,
                std::unique_ptr<Session> session, uint64_t turn, TimePoint now);
  ActiveRequest(const ActiveRequest&) = delete;
  ActiveRequest& operator=(const ActiveRequest&) = delete;

  const Request& request() const { return *request_; }
  // Everything was said and the outbox is closed: let go of this.
  bool ended() const { return ended_; }
  // When it must be looked at again: its deadline, or the end of the patience with a client that
  // does not read.
  TimePoint deadline() const { return std::min(request_->deadline, stalled_at_); }
  // It has not come to its first token yet.
  bool in_prompt() const { return prompt_ != nullptr; }
  // Slots that are set aside for it: one for each completion that may still run.
  uint32_t reserved_slots() const { return ended_ ? 0 : unfinished_; }
  // Adds these, and the pages that it may still take.
  void AddReserved(const StateCapacity& capacity, StateNeed& need) const;

  // The rows that have something to run: kPromptRow alone, or indices of completions. Appends to
  // both, one entry each.
  void AppendRows(TimePoint now, std::vector<int>& rows, std::vector<RowView>& views);

  // Puts a row's next `tokens` tokens into the plan, as turn number `turn`. RESOURCE_EXHAUSTED when
  // the fold needs a slot that is not there in this step: the row then sits it out.
  absl::Status AddToPlan(int row, uint32_t tokens, uint64_t turn, StepPlan& plan);
  // What came back for a row that was put into the plan.
  void CommitRow(int row, const StepRow& planned, RowResult result, TimePoint now);

  // Ends whatever still runs with this reason; the stream ends with `status`.
  void EndAll(FinishReason reason, absl::Status status, TimePoint now);
  // EndAll for whichever of deadline()'s two has passed.
  void EndLate(TimePoint now);

 private:
  Session& SessionOf(int row) const;
  void NoteOutbox(TimePoint now);
  RowView ViewOf(int row) const;
  // The prompt's last token is not fed with the others: each of several completions feeds it
  // itself; and where nothing is generated it stays pending, for the session's next turn.
  bool HoldsBackLast() const { return request_->completions > 1 || request_->max_tokens == 0; }
  // Its turn has neither a prompt nor tokens to generate: what is pending stays so, since the next
  // turn may have no prompt either and needs a token to go on from.
  bool AsksNothing() const { return request_->prompt.empty() && request_->max_tokens == 0; }
  void AppendPrompt();
  void AddScoreTargets(const Segment& segment, StepRow& row) const;
  void NoteTurn(uint32_t tokens, uint64_t turn);
  void CommitPrompt(const Segment& segment, RowResult result, TimePoint now);
  void EndPrompt(RowResult result, TimePoint now);
  void DeliverPromptScores();
  void StartCompletions(TimePoint now);
  void CommitTokens(Completion& completion, RowResult result, TimePoint now);
  void CommitToken(Completion& completion, SampledToken sample, TimePoint now);
  void FailRow(int row, const absl::Status& status, TimePoint now);
  // The end of a session's use here: back to its lease, or gone.
  void ReturnSession(std::unique_ptr<Session> session);
  void Send(StreamMessage message, TimePoint now);
  void Close(TimePoint now);

  RequestContext& context_;
  const std::unique_ptr<Request> request_;
  std::vector<uint32_t> stop_ids_;
  std::vector<std::unique_ptr<Completion>> completions_;
  std::unique_ptr<Session> prompt_;  // until the completions have started
  const uint64_t context_tokens_;    // that the session held before
  const uint32_t cached_tokens_;     // of them, those that its state held
  // Of its last turn's end, or its admission: else those who came later would go before it.
  uint64_t last_turn_;
  uint32_t turn_tokens_ = 0;  // since then
  std::vector<Logprobs> prompt_scores_;
  const TimePoint admitted_;
  bool has_token_ = false;
  TimePoint stalled_at_ = kNoDeadline;  // while the outbox is full
  uint32_t unfinished_;
  bool state_lost_ = false;
  absl::Status status_;
  bool ended_ = false;
};

// Ends a request that never got slots; its session is as it was.
void EndUnstarted(RequestContext& context, Request& request, absl::Status status, TimePoint now);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_ACTIVE_REQUEST_H_
