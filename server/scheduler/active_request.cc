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

// The call ends before the completion: its client learns no id.
bool CutShort(FinishReason reason) {
  return reason == FinishReason::kCancelled || reason == FinishReason::kDeadline;
}

Outcome OutcomeOf(const absl::Status& status, RequestKind kind, FinishReason reason) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      if (kind == RequestKind::kScore) return Outcome::kScored;
      if (reason == FinishReason::kStop) return Outcome::kStop;
      return reason == FinishReason::kEos ? Outcome::kEos : Outcome::kLength;
    case absl::StatusCode::kCancelled:
      return IsStalled(status) ? Outcome::kStalled : Outcome::kCancelled;
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

void Push(RequestContext& context, const Request& request, StreamMessage&& message) {
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
                             std::unique_ptr<Session> session, PrefixUse prefix, uint64_t turn,
                             TimePoint now)
    : context_(context),
      request_(std::move(request)),
      prompt_(std::move(session)),
      prefix_(std::move(prefix)),
      context_tokens_(prompt_->tokens().size() - prefix_.reused),
      cached_tokens_(static_cast<uint32_t>(prompt_->position())),
      tenant_weight_(request_->tenant == nullptr ? 1 : request_->tenant->weight()),
      last_turn_(turn),
      admitted_(now),
      session_(request_->keep_choices ? request_->session.key() : SessionKey("")),
      unfinished_(request_->completions) {}

void ActiveRequest::Start(TimePoint now) {
  stop_ids_ = StopIds(*request_, context_.options.eos_ids);
  AppendPrompt();
  context_.metrics.request_queue_time.Observe(Seconds(now - request_->arrival));
  context_.metrics.prompt_tokens_cached.Add(cached_tokens_);
  if (prompt_->tokens().empty() && request_->prompt.empty()) {
    EndAll(FinishReason::kError, absl::InvalidArgumentError("there is nothing to continue"), now);
  } else if (prompt_->pending() <= held_back() || AsksNothing()) {
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
  prompt_->Append(std::span(prompt).subspan(prefix_.reused));
}

uint64_t ActiveRequest::SharedPrompt(const Request& other) const {
  const bool shares = !ended_ && !ending_.has_value() && in_prompt() && prefix_.keeps &&
                      context_tokens_ == 0 && request_->cache_salt == other.cache_salt;
  if (!shares) return 0;
  const auto& own = request_->prompt;
  const auto parts =
      std::mismatch(own.begin(), own.end(), other.prompt.begin(), other.prompt.end());
  return static_cast<uint64_t>(parts.first - own.begin());
}

// A prompt's last step passes end_border, and the state there is kept then.
bool ActiveRequest::CanKeepAt(uint64_t border, uint64_t from) const {
  if (PromptFrontier() < from) return false;
  return border > PromptFrontier() ||
         (border == prefix_.end_border && prefix_.progress->kept < border);
}

std::shared_ptr<const PrefillProgress> ActiveRequest::KeepAt(uint64_t border) {
  if (border != prefix_.end_border) prefix_.cuts.insert(border);
  return prefix_.progress;
}

// The state at a cut is shared when the step that ends there was committed, and before the next one
// is planned.
bool ActiveRequest::WaitsAtCut() const {
  return prompt_in_flight_ > 0 && prefix_.cuts.contains(PromptFrontier());
}

void ActiveRequest::KeepState(const Session& session) {
  if (!prefix_.keeps) return;
  std::shared_ptr<StatePoint> point = session.SharePoint();
  if (point == nullptr || point->position <= std::max(prefix_.progress->kept, prefix_.reused))
    return;
  LeftState left{request_->cache_salt, {}, std::move(point)};
  session.tokens().CopyTo(0, left.point->position, left.tokens);
  context_.left.push_back(std::move(left));
  if (in_prompt()) prefix_.progress->kept = context_.left.back().point->position;
}

// At the end of the prompt, where the last border before its last token is behind the state, or was
// kept.
void ActiveRequest::EndPrefill() {
  const uint64_t border =
      prompt_->position() - prompt_->position() % context_.capacity.fold_interval;
  if (border == prefix_.end_border) KeepState(*prompt_);
  prefix_.progress->over = true;
}

void ActiveRequest::AddReserved(StateNeed& need) const {
  if (ended_) return;
  need.tokens += NotesTokens();
  const uint64_t tokens = LongestContext(*request_, context_tokens_);
  if (prompt_ != nullptr) {
    need.AddMissing(*prompt_, tokens);
    need.AddForks(context_.capacity, request_->completions, tokens);
    return;
  }
  for (const auto& completion : completions_) {
    if (!completion->finished()) need.AddMissing(completion->session(), tokens);
  }
}

uint64_t ActiveRequest::StateBytes() const {
  if (ended_) return 0;
  StateNeed reserved;
  AddReserved(reserved);
  uint64_t bytes = reserved.bytes(context_.capacity);
  if (prompt_ != nullptr) return bytes + prompt_->state_bytes();
  for (const auto& completion : completions_) {
    if (!completion->finished()) bytes += completion->session().state_bytes();
  }
  return bytes;
}

std::vector<Session*> ActiveRequest::sessions() {
  if (ended_) return {};
  if (prompt_ != nullptr) return {prompt_.get()};
  std::vector<Session*> running;
  for (const auto& completion : completions_) {
    if (!completion->finished()) running.push_back(&completion->session());
  }
  return running;
}

size_t ActiveRequest::DropKept(KeptStates what, size_t most) {
  size_t dropped = 0;
  for (Session* session : sessions()) {
    if (dropped < most) dropped += session->DropKept(what, most - dropped);
  }
  return dropped;
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

// Tokens to the next place where a piece of the prompt has to end; 0: there is none.
uint32_t ActiveRequest::ToCut(uint64_t position) const {
  const auto cut = prefix_.cuts.upper_bound(position);
  uint64_t next = cut == prefix_.cuts.end() ? UINT64_MAX : *cut;
  const uint64_t every = context_.capacity.fold_bases ? 0 : PromptBorders();
  if (every > 0) next = std::min(next, position - position % every + every);
  return next == UINT64_MAX ? 0 : static_cast<uint32_t>(next - position);
}

RowView ActiveRequest::ViewOf(int row) const {
  const Session& session = SessionOf(row);
  RowView view;
  view.position = session.position() + session.planned();
  if (row == kPromptRow) {
    view.prompt_left = static_cast<uint32_t>(session.pending() - session.planned() - held_back());
    view.to_cut = ToCut(view.position);
  }
  view.outbox_full = outbox_full_;
  view.deadline = deadline();
  view.last_turn = row == kPromptRow ? last_turn_ : completions_[row]->last_turn;
  view.tenant = request_->tenant.get();
  view.weight = tenant_weight_;
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
bool ActiveRequest::EndsInFlight(const Completion& completion) const {
  return completion.finished() ||
         completion.generated() + completion.in_flight >= request_->max_tokens;
}

// How many tokens drafts in flight will give is not known, nor can a drafter guess what follows a
// token that is not known, nor a grammar say what may follow it.
bool ActiveRequest::NeedsLastToken(const Completion& completion) const {
  return completion.drafter != nullptr || request_->grammar != nullptr;
}

bool ActiveRequest::CanRun(const Completion& completion) const {
  if (EndsInFlight(completion)) return false;
  return completion.in_flight == 0 || !NeedsLastToken(completion);
}

// Whether the outbox has room is not looked at: it depends on the reader.
ActiveRequest::Following ActiveRequest::FollowingOf(int row) const {
  if (ending_.has_value()) return Following::kFollows;
  if (row == kPromptRow) return Following::kWaits;
  const Completion& completion = *completions_[row];
  if (EndsInFlight(completion)) return Following::kFollows;
  if (NeedsLastToken(completion)) return Following::kWaits;
  const Session& session = completion.session();
  if (!session.MayPromise()) return Following::kWaits;
  return session.PromiseFolds() ? Following::kFolds : Following::kFollows;
}

// Of each row: they share what the outbox still takes beside a token of each.
size_t ActiveRequest::RoomForDrafts() const {
  size_t in_flight = 1;
  for (const auto& completion : completions_) {
    in_flight += completion->in_flight + completion->drafts.size();
  }
  const size_t room = request_->outbox->room();
  return (room - std::min(room, in_flight)) / unfinished_;
}

size_t ActiveRequest::MostDrafts(const Completion& completion) const {
  const size_t tokens_left = request_->max_tokens - completion.generated();
  const size_t limits[] = {completion.session().MostDrafts(), context_.options.drafts.most,
                           kMostDrafts, RoomForDrafts(), tokens_left - 1};
  return *std::min_element(std::begin(limits), std::end(limits));
}

DraftProspect ActiveRequest::Outlook(int row) {
  DraftProspect prospect;
  if (row == kPromptRow || completions_[row]->drafter == nullptr) return prospect;
  Completion& completion = *completions_[row];
  Drafter& drafter = *completion.drafter;
  const std::span<float> chances(prospect.chances.data(), MostDrafts(completion));
  prospect.count = drafter.Outlook(completion.session().tokens(), chances);
  prospect.seconds_a_draft = drafter.seconds_a_draft();
  prospect.seconds_before = drafter.seconds_before_drafts(completion.session().tokens());
  return prospect;
}

DraftStanding ActiveRequest::Standing(int row) const {
  if (row == kPromptRow) return {};
  const Completion& completion = *completions_[row];
  const double hits = completion.drafter == nullptr ? 0 : completion.drafter->hit_rate();
  const double missed = 1 - std::min(hits, 1.0);
  return {1 / std::max(missed, 1.0 / (1 + kMostDrafts)), completion.draft_budget.credit()};
}

void ActiveRequest::NoteDraftLoss(int row, const DraftLoss& loss, size_t right) {
  if (row == kPromptRow) return;
  completions_[row]->draft_budget.NoteStep(loss.lengthened - static_cast<double>(right), loss.read);
}

void ActiveRequest::FollowDrafts(int row) {
  if (row == kPromptRow) return;
  const Completion& completion = *completions_[row];
  if (completion.drafter == nullptr || completion.finished()) return;
  completion.drafter->Follow(completion.session().tokens());
}

DraftAsk ActiveRequest::AskFor(int row, uint32_t drafts) const {
  const Completion& completion = *completions_[row];
  return {completion.drafter.get(), &completion.session(), drafts};
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
    const bool goes_on = prompt_->pending() > prompt_->planned() + held_back();
    if (goes_on && !WaitsAtCut()) append(kPromptRow);
    return;
  }
  for (size_t i = 0; i < completions_.size(); ++i) {
    if (CanRun(*completions_[i])) append(static_cast<int>(i));
  }
}

// The target of a place is the token after it.
void ActiveRequest::AddScoreTargets(const Segment& segment, StepRow& row) const {
  if (!request_->score_prompt) return;
  const TokenSequence& tokens = prompt_->tokens();
  const uint64_t end = std::min<uint64_t>(segment.position + segment.tokens + 1, tokens.size());
  for (uint64_t next = segment.position + 1; next < end; ++next) {
    row.score_targets.push_back(tokens[next]);
  }
  row.score_top = request_->score_top;
}

absl::Status ActiveRequest::AddToPlan(int row, const PlannedRow& planned, uint64_t turn,
                                      StepPlan& plan) {
  Session& session = SessionOf(row);
  const bool ahead = session.segment_planned();
  if (ahead) session.CommitSegment();
  if (HasNewBorder(row)) KeepBorder(session);
  const bool promised = ahead && row != kPromptRow;
  const size_t first_token = plan.tokens.size();
  StepRow added;
  if (row == kPromptRow) {
    RIVULET_ASSIGN_OR_RETURN(
        added.segment,
        session.PlanSegment(first_token, planned.tokens, BordersOf(session, planned.tokens)));
    AddPromptTokens(planned.tokens, plan, added);
    NoteTurn(planned.tokens, turn);
  } else {
    Completion& completion = *completions_[row];
    completion.last_turn = turn;
    RIVULET_ASSIGN_OR_RETURN(added.segment,
                             PlanNextToken(completion, promised, planned.drafts, first_token));
    AddNextToken(completion, promised, plan, added);
  }
  ++InFlight(row);
  plan.rows.push_back(std::move(added));
  return absl::OkStatus();
}

absl::StatusOr<Segment> ActiveRequest::PlanNextToken(Completion& completion, bool promised,
                                                     uint32_t drafts, size_t first_token) {
  Session& session = completion.session();
  if (promised) return session.PlanPromised(first_token);
  if (drafts > 0) completion.drafter->Draft(session.tokens(), drafts, completion.drafts);
  auto segment = session.PlanDrafts(first_token, completion.drafts.size());
  if (!segment.ok()) completion.drafts.clear();
  return segment;
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
  Session& session = completion.session();
  plan.tokens.push_back(promised ? kLastSampled : session.tokens()[session.position()]);
  plan.tokens.insert(plan.tokens.end(), completion.drafts.begin(), completion.drafts.end());
  row.samples = static_cast<uint32_t>(1 + completion.drafts.size());
  row.spec = completion.Spec(session, promised ? 1 : 0);
}

void ActiveRequest::NoteTurn(uint32_t tokens, uint64_t turn) {
  turn_tokens_ += tokens;
  if (turn_tokens_ < kPromptTurnTokens) return;
  turn_tokens_ %= kPromptTurnTokens;  // the excess counts towards its next turn
  last_turn_ = turn;
}

size_t ActiveRequest::CommitRow(const RowInFlight& row, RowResult result, TimePoint now) {
  --InFlight(row.row);
  // Otherwise the row was planned ahead, and the step before ended its completion.
  const bool runs = row.row == kPromptRow || !completions_[row.row]->finished();
  const size_t right_drafts = runs ? CommitResult(row, std::move(result), now) : 0;
  if (ending_.has_value() && !ended_ && RowsInFlight() == 0) {
    EndAll(ending_->reason, ending_->status, now);
  }
  return right_drafts;
}

size_t ActiveRequest::CommitResult(const RowInFlight& row, RowResult result, TimePoint now) {
  if (!result.status.ok()) {
    FailRow(row.row, result.status, now);
    return 0;
  }
  // A segment that a later one followed is committed already.
  Session& session = SessionOf(row.row);
  const bool drafted = row.drafts > 0;  // committed by how many of the drafts are right
  if (!drafted && InFlight(row.row) == 0 && session.segment_planned()) session.CommitSegment();
  if (!drafted) CountFolds(row.position, row.tokens);
  if (row.row != kPromptRow) return CommitTokens(*completions_[row.row], std::move(result), now);
  CommitPrompt(row, std::move(result), now);
  return 0;
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
  const bool at_cut = prompt_in_flight_ == 0 && prefix_.cuts.contains(prompt_->position());
  if (at_cut) KeepState(*prompt_);
  if (prompt_->pending() == held_back()) EndPrompt(std::move(result), now);
}

void ActiveRequest::EndPrompt(RowResult result, TimePoint now) {
  context_.metrics.request_prefill_time.Observe(Seconds(now - admitted_));
  DeliverPromptScores();
  EndPrefill();
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
    if (request_->keep_choices) (*fork)->ShareKept(*prompt_);
    StartCompletion(*completions_[i], *std::move(fork));
  }
  StartCompletion(*completions_[0], std::move(prompt_));
}

void ActiveRequest::StartCompletion(Completion& completion, std::unique_ptr<Session> session) {
  completion.Start(std::move(session));
  DrafterSource* const source = context_.options.drafts.source;
  if (source == nullptr) return;
  completion.drafter = source->MakeDrafter({&request_->sampling, completion.index()});
}

// Samples count as far as the tokens before them are right and do not end the completion. Returns
// how many drafts were right.
size_t ActiveRequest::CommitTokens(Completion& completion, RowResult result, TimePoint now) {
  if (completion.drafts.empty()) {
    for (SampledToken& sample : result.samples) {
      if (!completion.finished()) CommitToken(completion, std::move(sample), now);
    }
    return 0;
  }
  completion.CountDrafts(completion.drafts.size());
  size_t committed = 0;
  for (bool goes_on = true; goes_on && committed < result.samples.size(); ++committed) {
    goes_on = CommitDrafted(completion, committed, std::move(result.samples[committed]), now);
  }
  CountDrafts(completion, committed - 1);
  completion.drafts.clear();
  if (!completion.finished()) completion.session().CancelSegment();
  return committed - 1;
}

// Whether the next sample counts too.
bool ActiveRequest::CommitDrafted(Completion& completion, size_t place, SampledToken sample,
                                  TimePoint now) {
  if (!sample.status.ok()) {
    FailRow(static_cast<int>(completion.index()), sample.status, now);
    return false;
  }
  CountFolds(completion.session().position(), 1);
  completion.session().CommitTokens(1);
  const bool right = place < completion.drafts.size() && completion.drafts[place] == sample.token;
  CommitToken(completion, std::move(sample), now, /*guessed=*/right);
  return right && !completion.finished();
}

void ActiveRequest::CountDrafts(const Completion& completion, size_t accepted) {
  const auto source = static_cast<size_t>(completion.drafter->source());
  context_.metrics.draft_tokens[source].Add(completion.drafts.size());
  context_.metrics.accepted_draft_tokens[source].Add(accepted);
}

void ActiveRequest::CountFolds(uint64_t position, size_t tokens) {
  context_.metrics.folds.Add(FoldsIn(position, tokens, context_.capacity.fold_interval));
}

void ActiveRequest::CommitToken(Completion& completion, SampledToken sample, TimePoint now,
                                bool guessed) {
  Metrics& metrics = context_.metrics;
  metrics.generation_tokens.Add();
  if (completion.generated() > 0) {
    metrics.inter_token_latency.Observe(Seconds(now - completion.last_token_time));
  } else if (!std::exchange(has_token_, true)) {
    metrics.time_to_first_token.Observe(Seconds(now - request_->arrival));
  }
  completion.last_token_time = now;
  Send(completion.Accept(sample.token, std::move(sample.logprob), guessed), now);
}

void ActiveRequest::FailRow(int row, const absl::Status& status, TimePoint now) {
  if (row == kPromptRow) {
    prompt_lost_ = true;
    return EndAll(FinishReason::kError, status, now);
  }
  completions_[row]->state_lost = true;
  if (status_.ok()) status_ = status;
  Send(completions_[row]->Finish(FinishReason::kError), now);
}

// The session of a turn that ends.
void ActiveRequest::LeaveState(Session& session) {
  session.CancelSegment();  // planned ahead
  if (prefix_.keeps_end) KeepState(session);
}

void ActiveRequest::LeaveSession(Completion& completion, StreamMessage& message) {
  std::unique_ptr<Session> session = completion.TakeSession();
  if (session == nullptr) return;
  if (!completion.state_lost) LeaveState(*session);
  if (completion.index() == 0) return ReturnSession(std::move(session), completion.state_lost);
  if (!request_->keep_choices || completion.state_lost || CutShort(message.finish_reason)) return;
  const auto kept = context_.sessions.Adopt(std::move(session), request_->notes, session_,
                                            context_tokens_ + request_->prompt.size());
  if (kept.ok()) message.fork_id = kept->id;
}

void ActiveRequest::ReturnSession(std::unique_ptr<Session> session, bool lost) {
  SessionLease& lease = request_->session;
  if (!lease.held()) return;
  if (lost) return lease.Drop();
  // The notes are those of the other completions, too.
  lease.SetNotes(request_->keep_choices ? request_->notes : std::move(request_->notes));
  lease.PutState(std::move(session));
  lease.Release();
}

void ActiveRequest::Send(StreamMessage&& message, TimePoint now) {
  const bool finished = message.finish_reason != FinishReason::kNone;
  if (finished) {
    message.usage.cached_tokens = cached_tokens_;
    message.usage.known_tokens = prefix_.known;
    message.usage.prefix_miss = prefix_.miss;
    LeaveSession(*completions_[message.index], message);
  }
  Push(context_, *request_, std::move(message));
  if (finished && --unfinished_ == 0) Close(now);
}

void ActiveRequest::EndAll(FinishReason reason, absl::Status status, TimePoint now) {
  prefix_.progress->over = true;
  if (prompt_ != nullptr) {
    if (!prompt_lost_) LeaveState(*prompt_);
    ReturnSession(std::move(prompt_), prompt_lost_);
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
  request_->outbox->Abandon();
  End(FinishReason::kCancelled, StalledError(), now);
}

void ActiveRequest::Abort(const absl::Status& status, TimePoint now) {
  if (ended_) return;
  SessionLease& lease = request_->session;
  if (lease.held() && lease.exclusive()) lease.Drop();
  EndUnstarted(context_, *request_, status, now);
  prefix_.progress->over = true;
  ended_ = true;
}

void ActiveRequest::Close(TimePoint now) {
  const FinishReason reason = completions_[0]->finish_reason();
  CloseOutbox(context_, *request_, status_, now);
  ended_ = true;
  context_.metrics.CountRequest(OutcomeOf(status_, request_->kind, reason));
}

}  // namespace rivulet
