// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A request that holds state slots: first one row for its prompt, then one for each completion.
//
// The prompt is processed once. With one completion, the prompt's last step samples its first
// token. With several, all that is pending but its last token is processed and the session is
// forked; each fork feeds the last token itself and samples with its own index. So a completion's
// bits do not depend on n.
//
// A turn of a session takes the session's state out of its lease and puts it back when completion 0
// ends, before the client is told. Unless a step failed, the session then holds the whole prompt
// and the generated tokens, the last of them pending; after a failed step it is dropped. The other
// completions become sessions of their own (Request::keep_choices) or leave nothing; nor do those
// that a cancel or a deadline cuts short, since the client would not learn their ids.
//
// A row that fails ends only its completion; a prompt that fails ends the request.
//
// A row may be planned while the step before still runs. Promises, cancelled segments and ends from
// outside are as in docs/architecture.md#running-ahead.
//
// Threading: engine thread only.
#ifndef RIVULET_SERVER_SCHEDULER_ACTIVE_REQUEST_H_
#define RIVULET_SERVER_SCHEDULER_ACTIVE_REQUEST_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "server/drafts/drafter.h"
#include "server/engine/step_plan.h"
#include "server/metrics/metrics.h"
#include "server/scheduler/completion.h"
#include "server/scheduler/draft_choice.h"
#include "server/scheduler/plan.h"
#include "server/scheduler/prefix_reuse.h"
#include "server/scheduler/request.h"
#include "server/scheduler/state_need.h"
#include "server/session/session.h"

namespace rivulet {

struct DraftOptions {
  DrafterSource* source = nullptr;  // --speculate; null: no drafts. It outlives the scheduler.
  uint32_t most = kMostDrafts;      // of a row in a step; --draft-tokens
  // All drafts are checked, without regard to their cost. For tests.
  bool always = false;
};

// As many borders as fit where a quarter of the slots stays free. Of prompts: all that the engine
// can leave without an end of the step.
inline constexpr uint32_t kAutomaticBorders = UINT32_MAX;

struct SchedulerOptions {
  PlanLimits limits;
  // Requests that may wait for slots or for the end of their prompt; --max-queue. Prompts that run
  // count too: with many slots, the queue would otherwise move into them and have no bound.
  uint32_t max_queue = 256;
  // Tokens that a session, or a completion with its prompt, may hold; --max-context. A session
  // keeps its token ids, 4 bytes each, and where states have a fixed size nothing else bounds them.
  // Completions end there with LENGTH; a request that starts beyond is refused.
  uint64_t max_context = uint64_t{1} << 22;
  // Tokens that all sessions and running requests may hold together, 4 bytes each;
  // --max-session-tokens. Where they leave no room for a prompt, idle sessions are dropped, the
  // least recently used first. What running requests generate counts and is not cut short.
  uint64_t max_session_tokens = uint64_t{1} << 28;
  // Ends of turns that a session can go back to, the last ones; --keep-positions.
  uint32_t keep_positions = 0;
  // Borders of each session that has kept positions; --keep-borders. In prompts there is one in
  // each `prompt_borders` tokens, --prompt-borders; 0: only where a step ends.
  uint32_t keep_borders = 0;
  uint32_t prompt_borders = 0;
  PrefixCache::Limits prefix_cache;  // --prefix-cache
  // How long a stream whose client does not read keeps its slots once its outbox is full.
  Clock::duration stall_limit = std::chrono::minutes(5);
  const Tokenizer* tokenizer = nullptr;  // null: the model has none
  std::vector<uint32_t> eos_ids;
  DraftOptions drafts;
};

// What all requests share. It outlives them.
struct RequestContext {
  const SchedulerOptions options;
  Metrics& metrics;
  const StateCapacity& capacity;  // the engine's
  SessionTable& sessions;         // where kept completions go
  // Outboxes to announce to the dispatcher at the end of this plan or commit.
  std::vector<std::shared_ptr<Outbox>> ready = {};
  // What borders may take in this plan.
  StateNeed border_room = {};
  // States that the prefix cache is to take before slots are counted again.
  std::vector<LeftState> left = {};
};

class ActiveRequest;

// A row that has something to run, or runs.
struct RowInFlight {
  ActiveRequest* request;
  int row;                // ActiveRequest::kPromptRow, or the index of a completion
  uint64_t position = 0;  // of its segment, once it is planned
  size_t tokens = 0;      // with the drafts
  size_t drafts = 0;
  size_t right_drafts = 0;  // once it is committed
};

class ActiveRequest {
 public:
  static constexpr int kPromptRow = -1;

  // What becomes of a row of the step in flight in a step that is planned before it has ended.
  enum class Following {
    kFollows,  // or its completion ends with the step in flight
    kFolds,    // it follows, and takes a base
    kWaits,    // it would sit the step out
  };

  // `session`: the one that the prompt continues, or a new one. `turn`: the number of its
  // admission, as in RowView::last_turn. `prefix`: the session holds the first prefix.reused tokens
  // of the prompt already. Call Start next.
  ActiveRequest(RequestContext& context, std::unique_ptr<Request> request,
                std::unique_ptr<Session> session, PrefixUse prefix, uint64_t turn, TimePoint now);
  ActiveRequest(const ActiveRequest&) = delete;
  ActiveRequest& operator=(const ActiveRequest&) = delete;

  // Appends the prompt to the session. The request may end here.
  void Start(TimePoint now);

  const Request& request() const { return *request_; }
  // The outbox is closed, and this can be destroyed.
  bool ended() const { return ended_; }
  // When EndLate has to be called: at the request's deadline, or when its client has not read for
  // the stall limit.
  TimePoint deadline() const { return std::min(request_->deadline, stalled_at_); }
  // It has no first token yet.
  bool in_prompt() const { return prompt_ != nullptr; }
  // Adds what is reserved for it: the slots and pages that its completions may still take.
  void AddReserved(StateNeed& need) const;
  // What it holds and what is reserved for it, in bytes, but for what its sessions keep beside
  // their states.
  uint64_t StateBytes() const;
  // That of its prompt, or those of the completions that run.
  std::vector<Session*> sessions();
  // Of these, as Session::DropKept. REQUIRES: most > 0.
  size_t DropKept(KeptStates what, size_t most);
  // How many borders of the row's session AddToPlan keeps with its next `tokens` tokens, if there
  // is room.
  size_t NewBorders(int row, uint32_t tokens) const;
  // Of a row that runs, up to `most`. How many. REQUIRES: most > 0.
  size_t DropBorders(int row, size_t most) {
    return SessionOf(row).DropKept(KeptStates::kBorder, most);
  }

  // The tokens at the beginning of its prompt that `other` shares; 0 if its prompt does not begin a
  // context, or its states are not kept for `other`.
  uint64_t SharedPrompt(const Request& other) const;
  // Whether the state after so many tokens of its prompt can still be kept, by a prefill that has
  // come as far as `from`.
  bool CanKeepAt(uint64_t border, uint64_t from) const;
  // Keeps it. REQUIRES: CanKeepAt(border).
  std::shared_ptr<const PrefillProgress> KeepAt(uint64_t border);

  // The rows that have something to run. Appends to both, one entry each.
  void AppendRows(TimePoint now, std::vector<RowInFlight>& rows, std::vector<RowView>& views);

  // What a row that decodes could check beside its next token.
  DraftProspect Outlook(int row);
  DraftStanding Standing(int row) const;
  // What drafts cost a step of the row, and how many tokens its own gave it.
  void NoteDraftLoss(int row, const DraftLoss& loss, size_t right);
  // Lets the row's drafter take in the last tokens.
  void FollowDrafts(int row);
  // For DrafterSource::Prepare. REQUIRES: Outlook said that the row could check so many.
  DraftAsk AskFor(int row, uint32_t drafts) const;

  // Of a row of the only step in flight. A completion may also end by a stop, which is not known
  // before the token is.
  Following FollowingOf(int row) const;

  // Puts a row's next `tokens` tokens and so many drafts, or fewer, into the plan, as turn number
  // `turn`. RESOURCE_EXHAUSTED when the row needs a slot that is not there in this step, or cannot
  // run ahead: it sits the step out.
  absl::Status AddToPlan(int row, const PlannedRow& planned, uint64_t turn, StepPlan& plan);
  // What came back for a row that was put into a plan, in the order of the plans. Returns how many
  // of its drafts were right.
  size_t CommitRow(const RowInFlight& row, RowResult result, TimePoint now);

  // Ends what still runs with this reason, as soon as no step in flight holds a row of this; the
  // stream ends with `status`. The first call counts.
  void End(FinishReason reason, absl::Status status, TimePoint now);
  // End for whichever of deadline()'s two has passed.
  void EndLate(TimePoint now);
  // Ends it at once, in the state in which std::bad_alloc has left it. No row may run any more. The
  // stream ends with `status`, without a last message, and the session is dropped.
  void Abort(const absl::Status& status, TimePoint now);

 private:
  uint64_t NotesTokens() const;

  struct Ending {
    FinishReason reason;
    absl::Status status;
  };

  Session& SessionOf(int row) const;
  uint32_t& InFlight(int row);
  // Rows in the steps in flight.
  uint32_t RowsInFlight() const;
  void NoteOutbox(TimePoint now);
  bool EndsInFlight(const Completion& completion) const;
  bool NeedsLastToken(const Completion& completion) const;
  bool CanRun(const Completion& completion) const;
  size_t RoomForDrafts() const;
  size_t MostDrafts(const Completion& completion) const;
  absl::StatusOr<Segment> PlanNextToken(Completion& completion, bool promised, uint32_t drafts,
                                        size_t first_token);
  RowView ViewOf(int row) const;
  uint32_t ToCut(uint64_t position) const;
  bool HasNewBorder(int row) const;
  uint64_t PromptBorders() const;
  size_t MostBorders(const Session& session) const;
  void KeepBorder(Session& session);
  BorderRule BordersOf(const Session& session, uint32_t tokens);
  // The last pending token is not fed with the others. Each of several completions feeds it itself;
  // if nothing is generated, it stays pending for the session's next turn.
  bool HoldsBackLast() const { return request_->completions > 1 || request_->max_tokens == 0; }
  size_t held_back() const { return HoldsBackLast() ? 1 : 0; }
  // The turn has neither a prompt nor tokens to generate. Pending tokens stay pending: the next
  // turn may have no prompt either and needs a token to continue from.
  bool AsksNothing() const { return request_->prompt.empty() && request_->max_tokens == 0; }
  void AppendPrompt();
  uint64_t PromptFrontier() const { return prompt_->position() + prompt_->planned(); }
  bool WaitsAtCut() const;
  void KeepState(const Session& session);
  void EndPrefill();
  void AddPromptTokens(uint32_t tokens, StepPlan& plan, StepRow& row) const;
  void AddNextToken(Completion& completion, bool promised, StepPlan& plan, StepRow& row) const;
  void AddScoreTargets(const Segment& segment, StepRow& row) const;
  void NoteTurn(uint32_t tokens, uint64_t turn);
  size_t CommitResult(const RowInFlight& row, RowResult result, TimePoint now);
  void CommitPrompt(const RowInFlight& row, RowResult result, TimePoint now);
  void EndPrompt(RowResult result, TimePoint now);
  void DeliverPromptScores();
  void StartCompletions(TimePoint now);
  size_t CommitTokens(Completion& completion, RowResult result, TimePoint now);
  bool CommitDrafted(Completion& completion, size_t place, SampledToken sample, TimePoint now);
  void CountDrafts(const Completion& completion, size_t accepted);
  void CountFolds(uint64_t position, size_t tokens);
  void StartCompletion(Completion& completion, std::unique_ptr<Session> session);
  void CommitToken(Completion& completion, SampledToken sample, TimePoint now,
                   bool guessed = false);
  void FailRow(int row, const absl::Status& status, TimePoint now);
  void EndAll(FinishReason reason, absl::Status status, TimePoint now);
  void LeaveState(Session& session);
  // Of a completion that has ended.
  void LeaveSession(Completion& completion, StreamMessage& message);
  // Puts the session back into its lease, or drops it.
  void ReturnSession(std::unique_ptr<Session> session, bool lost);
  void Send(StreamMessage&& message, TimePoint now);
  void Close(TimePoint now);

  RequestContext& context_;
  const std::unique_ptr<Request> request_;
  std::vector<uint32_t> stop_ids_;  // from Start on
  std::vector<std::unique_ptr<Completion>> completions_;
  std::unique_ptr<Session> prompt_;  // until the completions have started
  PrefixUse prefix_;
  const uint64_t context_tokens_;  // that the session held before the prompt
  const uint32_t cached_tokens_;   // of them, those that its state held
  const uint32_t tenant_weight_;
  // The number of its last turn's end or of its admission, so that later requests queue behind it.
  uint64_t last_turn_;
  uint32_t turn_tokens_ = 0;  // since then
  std::vector<Logprobs> prompt_scores_;
  const TimePoint admitted_;
  const SessionKey session_;  // if completions are kept
  bool has_token_ = false;
  TimePoint stalled_at_ = kNoDeadline;  // while the outbox is full
  bool outbox_full_ = false;            // or will be, with the tokens of the steps in flight
  uint32_t prompt_in_flight_ = 0;       // steps in flight that hold the prompt's row
  std::optional<Ending> ending_;        // until no step in flight holds a row
  uint32_t unfinished_;
  bool prompt_lost_ = false;  // its state, in a failed step
  absl::Status status_;
  bool ended_ = false;
};

// Ends a request that never got slots; its session is unchanged.
void EndUnstarted(RequestContext& context, Request& request, absl::Status status, TimePoint now);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_ACTIVE_REQUEST_H_
