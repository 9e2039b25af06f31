// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/active_request.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status.h"
#include "kernels/recurrence/state.h"
#include "server/text/detokenizer.h"

namespace rivulet {
namespace {

std::vector<uint32_t> StopIds(const Request& request, const std::vector<uint32_t>& eos_ids) {
  std::vector<uint32_t> ids = request.stop.token_ids;
  if (!request.stop.ignore_eos) ids.insert(ids.end(), eos_ids.begin(), eos_ids.end());
  return ids;
}

bool StartsText(const Tokenizer& tokenizer, const TokenSequence& context) {
  for (size_t i = 0; i < context.size(); ++i) {
    const uint32_t token = context[i];
    if (!Detokenizer::StartsText(tokenizer, std::span(&token, 1))) return false;
  }
  return true;
}

Outcome OutcomeOf(const absl::Status& status, RequestKind kind, FinishReason reason) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      if (kind == RequestKind::kScore) return Outcome::kScored;
      if (reason == FinishReason::kStop) return Outcome::kStop;
      return reason == FinishReason::kEos ? Outcome::kEos : Outcome::kLength;
    case absl::StatusCode::kCancelled:
      return Outcome::kCancelled;
    case absl::StatusCode::kDeadlineExceeded:
      return Outcome::kDeadline;
    case absl::StatusCode::kUnavailable:
      return status.GetPayload(kDeviceLostPayload).has_value() ? Outcome::kError
                                                               : Outcome::kRejectedDraining;
    case absl::StatusCode::kNotFound:
      return Outcome::kRejectedSession;
    case absl::StatusCode::kResourceExhausted:
      return Outcome::kRejectedSlots;
    default:
      return Outcome::kError;
  }
}

// Announces the outbox if `put`, which puts something into it, says so. Its place in the list comes
// first: an outbox that counts as announced must not be lost without memory.
template <typename Put>
void Announce(RequestContext& context, const std::shared_ptr<Outbox>& outbox, const Put& put) {
  context.ready.push_back(outbox);
  if (!put(*outbox)) context.ready.pop_back();
}

void Push(RequestContext& context, const Request& request, StreamMessage message) {
  Announce(context, request.outbox,
           [&message](Outbox& outbox) { return outbox.Push(std::move(message)); });
}

void CloseOutbox(RequestContext& context, const Request& request, absl::Status status,
                 TimePoint now) {
  Announce(context, request.outbox,
           [&status](Outbox& outbox) { return outbox.Close(std::move(status)); });
  context.metrics.e2e_request_latency.Observe(Seconds(now - request.arrival));
}

}  // namespace

void EndUnstarted(RequestContext& context, Request& request, absl::Status status, TimePoint now) {
  request.session.Release();
  const Outcome outcome = OutcomeOf(status, request.kind, FinishReason::kNone);
  CloseOutbox(context, request, std::move(status), now);
  context.metrics.CountRequest(outcome);
}

ActiveRequest::ActiveRequest(RequestContext& context, std::unique_ptr<Request> request,
                             std::unique_ptr<Session> session, uint64_t turn, TimePoint now)
    : context_(context),
      request_(std::move(request)),
      prompt_(std::move(session)),
      context_tokens_(prompt_->tokens().size()),
      cached_tokens_(static_cast<uint32_t>(prompt_->position())),
      last_turn_(turn),
      admitted_(now),
      unfinished_(request_->completions) {}

void ActiveRequest::Start(TimePoint now) {
  stop_ids_ = StopIds(*request_, context_.options.eos_ids);
  AppendPrompt();
  context_.metrics.request_queue_time.Observe(Seconds(now - request_->arrival));
  context_.metrics.prompt_tokens_cached.Add(cached_tokens_);
  if (prompt_->tokens().empty() && request_->prompt.empty()) {
    EndAll(FinishReason::kError, absl::InvalidArgumentError("there is nothing to continue"), now);
  } else if (prompt_->pending() == 0 || AsksNothing()) {
    EndPrompt({}, now);
  }
}

void ActiveRequest::AppendPrompt() {
  const std::vector<uint32_t>& prompt = request_->prompt;
  const bool starts_text = context_.options.tokenizer != nullptr &&
                           StartsText(*context_.options.tokenizer, prompt_->tokens()) &&
                           Detokenizer::StartsText(*context_.options.tokenizer, prompt);
  for (uint32_t i = 0; i < request_->completions; ++i) {
    completions_.push_back(std::make_unique<Completion>(
        *request_, stop_ids_, context_.options.tokenizer, starts_text, i));
  }
  const size_t held_back = HoldsBackLast() && !prompt.empty() ? 1 : 0;
  prompt_->Append(std::span(prompt).first(prompt.size() - held_back));
}

void ActiveRequest::AddReserved(StateNeed& need) const {
  if (ended_) return;
  need.tokens += NotesTokens();
  const uint64_t tokens = LongestContext(*request_, context_tokens_);
  if (prompt_ != nullptr) {
    need.AddMissing(*prompt_, tokens);
    need.tails += request_->completions - 1;
    need.bases += request_->completions - 1;
    const uint32_t forks = request_->completions > 1 ? request_->completions : 0;
    need.AddWhole(context_.capacity, forks, tokens);
    return;
  }
  for (const auto& completion : completions_) {
    if (!completion->finished()) need.AddMissing(completion->session(), tokens);
  }
}

Session* ActiveRequest::session() {
  if (ended_) return nullptr;
  if (prompt_ != nullptr) return prompt_.get();
  const bool one = completions_.size() == 1 && !completions_[0]->finished();
  return one ? &completions_[0]->session() : nullptr;
}

bool ActiveRequest::DropOldestKept() {
  Session* const own = session();
  return own != nullptr && own->DropOldestKept();
}

// Until the session has them.
uint64_t ActiveRequest::NotesTokens() const {
  return request_->notes == nullptr ? 0 : TokensOfNotes(request_->notes->bytes());
}

Session& ActiveRequest::SessionOf(int row) const {
  return row == kPromptRow ? *prompt_ : completions_[row]->session();
}

uint32_t& ActiveRequest::InFlight(int row) {
  return row == kPromptRow ? prompt_in_flight_ : completions_[row]->in_flight;
}

uint32_t ActiveRequest::RowsInFlight() const {
  uint32_t rows = prompt_in_flight_;
  for (const auto& completion : completions_) rows += completion->in_flight;
  return rows;
}

RowView ActiveRequest::ViewOf(int row) const {
  const Session& session = SessionOf(row);
  RowView view;
  view.position = session.position() + session.planned();
  if (row == kPromptRow) {
    view.prompt_left = static_cast<uint32_t>(session.pending() - session.planned());
  }
  view.outbox_full = outbox_full_;
  view.deadline = deadline();
  view.last_turn = last_turn_;
  return view;
}

void ActiveRequest::NoteOutbox(TimePoint now) {
  outbox_full_ = request_->outbox->full();
  if (!outbox_full_) {
    stalled_at_ = kNoDeadline;
  } else if (stalled_at_ == kNoDeadline) {
    stalled_at_ = now + context_.options.stall_limit;
  }
  const uint32_t promised = RowsInFlight();
  if (promised > 0 && !outbox_full_) outbox_full_ = request_->outbox->full(promised);
}

// The token of a step in flight may be its last by max_tokens.
bool ActiveRequest::CanRun(const Completion& completion) const {
  return !completion.finished() &&
         completion.generated() + completion.in_flight < request_->max_tokens;
}

void ActiveRequest::AppendRows(TimePoint now, std::vector<RowInFlight>& rows,
                               std::vector<RowView>& views) {
  if (ending_.has_value()) return;
  NoteOutbox(now);
  const auto append = [&](int row) {
    rows.push_back({this, row});
    views.push_back(ViewOf(row));
  };
  if (prompt_ != nullptr) {
    // The completions start when the prompt's last step has been committed.
    if (prompt_->pending() > prompt_->planned()) append(kPromptRow);
    return;
  }
  for (size_t i = 0; i < completions_.size(); ++i) {
    if (CanRun(*completions_[i])) append(static_cast<int>(i));
  }
}

// The target of a place is the token after it, of the session or of the prompt. The prompt's last
// token may be held back and is not in the session then.
void ActiveRequest::AddScoreTargets(const Segment& segment, StepRow& row) const {
  if (!request_->score_prompt) return;
  const std::vector<uint32_t>& prompt = request_->prompt;
  for (uint64_t next = segment.position + 1; next <= segment.position + segment.tokens; ++next) {
    if (next < context_tokens_) {
      row.score_targets.push_back(prompt_->tokens()[next]);
    } else if (next - context_tokens_ < prompt.size()) {
      row.score_targets.push_back(prompt[next - context_tokens_]);
    }
  }
  row.score_top = request_->score_top;
}

absl::Status ActiveRequest::AddToPlan(int row, uint32_t tokens, uint64_t turn, StepPlan& plan) {
  Session& session = SessionOf(row);
  const bool ahead = session.segment_planned();
  if (ahead) session.CommitSegment();
  const bool promised = ahead && row != kPromptRow;
  StepRow planned;
  RIVULET_ASSIGN_OR_RETURN(planned.segment, promised
                                                ? session.PlanPromised(plan.tokens.size())
                                                : session.PlanSegment(plan.tokens.size(), tokens));
  if (row == kPromptRow) {
    AddPromptTokens(tokens, plan, planned);
    NoteTurn(tokens, turn);
  } else {
    AddNextToken(*completions_[row], promised, plan, planned);
  }
  ++InFlight(row);
  plan.rows.push_back(std::move(planned));
  return absl::OkStatus();
}

void ActiveRequest::AddPromptTokens(uint32_t tokens, StepPlan& plan, StepRow& row) const {
  prompt_->tokens().CopyTo(prompt_->position(), tokens, plan.tokens);
  AddScoreTargets(row.segment, row);
  if (HoldsBackLast() || tokens < prompt_->pending()) return;
  row.samples = 1;
  row.spec = completions_[0]->Spec(*prompt_);
}

void ActiveRequest::AddNextToken(Completion& completion, bool promised, StepPlan& plan,
                                 StepRow& row) const {
  const Session& session = completion.session();
  plan.tokens.push_back(promised ? kLastSampled : session.tokens()[session.position()]);
  row.samples = 1;
  row.spec = completion.Spec(session, promised ? 1 : 0);
}

void ActiveRequest::NoteTurn(uint32_t tokens, uint64_t turn) {
  turn_tokens_ += tokens;
  if (turn_tokens_ < kPromptTurnTokens) return;
  turn_tokens_ %= kPromptTurnTokens;  // the excess counts towards its next turn
  last_turn_ = turn;
}

void ActiveRequest::CommitRow(const RowInFlight& row, RowResult result, TimePoint now) {
  --InFlight(row.row);
  // Otherwise the row was planned ahead, and the step before ended its completion.
  const bool runs = row.row == kPromptRow || !completions_[row.row]->finished();
  if (runs) CommitResult(row, std::move(result), now);
  if (ending_.has_value() && !ended_ && RowsInFlight() == 0) {
    EndAll(ending_->reason, ending_->status, now);
  }
}

void ActiveRequest::CommitResult(const RowInFlight& row, RowResult result, TimePoint now) {
  if (!result.status.ok()) return FailRow(row.row, result.status, now);
  // A segment that a later one followed is committed already.
  Session& session = SessionOf(row.row);
  if (InFlight(row.row) == 0 && session.segment_planned()) session.CommitSegment();
  context_.metrics.folds.Add(FoldsIn(row.position, row.tokens, context_.capacity.fold_interval));
  if (row.row == kPromptRow) return CommitPrompt(row, std::move(result), now);
  CommitTokens(*completions_[row.row], std::move(result), now);
}

void ActiveRequest::CommitPrompt(const RowInFlight& row, RowResult result, TimePoint now) {
  context_.metrics.prompt_tokens_computed.Add(row.tokens);
  // A session that was cancelled in its prompt has more than one token pending. Their scores were
  // not asked for.
  const uint64_t next = row.position + 1;
  const uint64_t before_prompt = context_tokens_ > next ? context_tokens_ - next : 0;
  const size_t unasked = std::min<size_t>(before_prompt, result.scores.size());
  std::move(result.scores.begin() + static_cast<ptrdiff_t>(unasked), result.scores.end(),
            std::back_inserter(prompt_scores_));
  if (prompt_->pending() == 0) EndPrompt(std::move(result), now);
}

void ActiveRequest::EndPrompt(RowResult result, TimePoint now) {
  context_.metrics.request_prefill_time.Observe(Seconds(now - admitted_));
  DeliverPromptScores();
  if (request_->max_tokens == 0) return EndAll(FinishReason::kLength, absl::OkStatus(), now);
  StartCompletions(now);
  CommitTokens(*completions_[0], std::move(result), now);
}

void ActiveRequest::DeliverPromptScores() {
  if (prompt_scores_.empty()) return;
  StreamMessage message;
  message.prompt_logprobs = std::exchange(prompt_scores_, {});
  Push(context_, *request_, std::move(message));
}

void ActiveRequest::StartCompletions(TimePoint now) {
  if (request_->completions > 1) context_.metrics.prompt_tokens_computed.Add(1);
  for (size_t i = 1; i < completions_.size(); ++i) {
    auto fork = prompt_->Fork();
    if (!fork.ok()) {
      FailRow(static_cast<int>(i), fork.status(), now);
      continue;
    }
    (*fork)->Append(request_->prompt.back());
    completions_[i]->Start(*std::move(fork));
  }
  if (request_->completions > 1) prompt_->Append(request_->prompt.back());
  completions_[0]->Start(std::move(prompt_));
}

// Tokens after the one that ends the completion were sampled for nothing.
void ActiveRequest::CommitTokens(Completion& completion, RowResult result, TimePoint now) {
  for (SampledToken& sample : result.samples) {
    if (!completion.finished()) CommitToken(completion, std::move(sample), now);
  }
}

void ActiveRequest::CommitToken(Completion& completion, SampledToken sample, TimePoint now) {
  Metrics& metrics = context_.metrics;
  metrics.generation_tokens.Add();
  if (completion.generated() > 0) {
    metrics.inter_token_latency.Observe(Seconds(now - completion.last_token_time));
  } else if (!std::exchange(has_token_, true)) {
    metrics.time_to_first_token.Observe(Seconds(now - request_->arrival));
  }
  completion.last_token_time = now;
  Send(completion.Accept(sample.token, std::move(sample.logprob)), now);
}

void ActiveRequest::FailRow(int row, const absl::Status& status, TimePoint now) {
  state_lost_ = true;
  if (row == kPromptRow) return EndAll(FinishReason::kError, status, now);
  if (status_.ok()) status_ = status;
  Send(completions_[row]->Finish(FinishReason::kError), now);
}

void ActiveRequest::ReturnSession(std::unique_ptr<Session> session) {
  SessionLease& lease = request_->session;
  if (session == nullptr || !lease.held()) return;
  if (state_lost_) return lease.Drop();
  session->CancelSegment();  // planned ahead
  lease.SetNotes(std::move(request_->notes));
  lease.PutState(std::move(session));
  lease.Release();
}

void ActiveRequest::Send(StreamMessage message, TimePoint now) {
  const bool finished = message.finish_reason != FinishReason::kNone;
  if (finished) {
    message.usage.cached_tokens = cached_tokens_;
    ReturnSession(completions_[message.index]->TakeSession());
  }
  Push(context_, *request_, std::move(message));
  if (finished && --unfinished_ == 0) Close(now);
}

void ActiveRequest::EndAll(FinishReason reason, absl::Status status, TimePoint now) {
  if (prompt_ != nullptr) {
    if (HoldsBackLast() && !request_->prompt.empty()) prompt_->Append(request_->prompt.back());
    ReturnSession(std::move(prompt_));
  }
  if (status_.ok()) status_ = std::move(status);
  for (const auto& completion : completions_) {
    if (!completion->finished()) Send(completion->Finish(reason), now);
  }
}

void ActiveRequest::End(FinishReason reason, absl::Status status, TimePoint now) {
  if (RowsInFlight() == 0) return EndAll(reason, std::move(status), now);
  if (!ending_.has_value()) ending_ = Ending{reason, std::move(status)};
}

void ActiveRequest::EndLate(TimePoint now) {
  if (request_->deadline <= now) {
    return End(FinishReason::kDeadline,
               absl::DeadlineExceededError("the deadline passed while the request ran"), now);
  }
  absl::Status stalled = absl::CancelledError(
      "the client did not read for --stalled-client-seconds, so the request was ended");
  request_->outbox->Abandon();
  End(FinishReason::kCancelled, std::move(stalled), now);
}

void ActiveRequest::Abort(const absl::Status& status, TimePoint now) {
  if (ended_) return;
  SessionLease& lease = request_->session;
  if (lease.held() && lease.exclusive()) lease.Drop();
  EndUnstarted(context_, *request_, status, now);
  ended_ = true;
}

void ActiveRequest::Close(TimePoint now) {
  const FinishReason reason = completions_[0]->finish_reason();
  CloseOutbox(context_, *request_, status_, now);
  ended_ = true;
  context_.metrics.CountRequest(OutcomeOf(status_, request_->kind, reason));
}

}  // namespace rivulet
