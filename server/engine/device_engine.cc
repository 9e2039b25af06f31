// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A step is one copy of its description to the device and its operations, the last of which write
// what they sampled to the host. A step of decode rows alone is the replay of a recording for at
// least as many rows, and so is a step of few tokens, but for its logits; rows and tokens that are
// too many belong to segments without tokens.
//
// Tokens are sampled on the device, with the ids that the host would draw. Only rows whose
// penalties and biases touch more tokens than the description of a step has room for are sampled on
// the host, as the CPU's engine does, on logits that are copied there. What a row's grammar takes
// is found on the host while the device runs the step, and goes there as a mask of the vocabulary
// before such rows are drawn (device_engine_masks.cc).
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <iterator>
#include <new>
#include <span>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status.h"
#include "kernels/base/thread_pool.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/sampling_operations.h"
#include "kernels/device/segment_turns.h"
#include "server/engine/device_engine_class.h"
#include "server/engine/device_model.h"
#include "server/engine/device_states.h"
#include "server/engine/row_answers.h"
#include "server/engine/step_description.h"
#include "server/engine/step_draws.h"
#include "server/engine/step_times.h"

namespace rivulet {
namespace {

void SleepUntil(StepTimes::Clock::time_point end) {
  // The kernel may wake a thread later by its slack, 50 µs where nothing else was asked for.
  constexpr unsigned long kSlack = 1000;  // ns
  thread_local const int asked = prctl(PR_SET_TIMERSLACK, kSlack);
  static_cast<void>(asked);
  std::this_thread::sleep_until(end);
}

}  // namespace

absl::Status DeviceEngine::Failed(const absl::Status& status) {
  if (status.ok()) return status;
  return absl::UnavailableError(absl::StrCat(
      status.message(), "; all sessions are lost: start new ones when the server is ready again"));
}

StepTicket DeviceEngine::Launch(const StepPlan& plan) {
  RIVULET_CHECK(launched_ - awaited_ < depth_,
                "more steps are launched than the engine runs ahead");
  Step& step = current();
  try {
    std::vector<size_t> promised;
    bool several = false;  // after one of these the host has to know the token
    for (size_t r = 0; r < plan.rows.size(); ++r) {
      if (!IsPromised(plan, plan.rows[r])) continue;
      RIVULET_CHECK(plan.rows[r].spec.grammar == nullptr,
                    "what a grammar takes is not known before the row's last token is");
      promised.push_back(r);
      several = several || plan.rows[r].samples > 1;
    }
    const bool in_parts = plan.tokens.size() > kMostTokens || PageSlots(plan) > page_slots_;
    const std::vector<bool> on_host = RowsForHost(plan, kMostEdits);
    const bool on_device =
        !several && std::find(on_host.begin(), on_host.end(), true) == on_host.end();
    const bool known = launched_ == awaited_ || StepOf(launched_).known;
    StepPlan resolved;
    std::deque<TokenCounts> counts;
    const StepPlan* runs = &plan;
    if (!promised.empty() && (in_parts || known || !on_device)) {
      resolved = plan;
      KeepPromises(resolved, counts);
      runs = &resolved;
    }
    in_parts ? RunInParts(*runs) : RunPass(*runs);
    step.promised = std::move(promised);
  } catch (const std::bad_alloc&) {
    GiveUp(plan, step);
  }
  return ++launched_;
}

// Fails all rows of a step for want of memory. What was enqueued of it still reads its buffers, so
// that has to end first; nothing of it counts.
void DeviceEngine::GiveUp(const StepPlan& plan, Step& step) {
  failure_.Update(Failed(device_->Synchronize()));
  step.recording = nullptr;
  step.known = step.timed = true;
  step.pending.clear();
  step.promised.clear();
  step.result = {};
  step.result.rows.resize(plan.rows.size());
  NoteTails(plan, step);
  FailRows(step, NoMemory("in a step"));
}

// Puts the tokens that the step before sampled, which the host knows or waits for, in the place of
// kLastSampled and into the counts of their rows.
void DeviceEngine::KeepPromises(StepPlan& plan, std::deque<TokenCounts>& counts) {
  if (launched_ != awaited_) {
    Finish(StepOf(launched_)).IgnoreError();  // Await reports it
  }
  const auto with = [&](const TokenCounts* old, uint32_t token) -> const TokenCounts* {
    if (old == nullptr) return nullptr;
    counts.push_back(*old);
    counts.back().Add(token);
    return &counts.back();
  };
  for (StepRow& row : plan.rows) {
    uint32_t& token = plan.tokens[row.segment.first_token];
    if (token != kLastSampled) continue;
    token = last_sampled_[row.segment.tail];
    row.spec.session_counts = with(row.spec.session_counts, token);
    row.spec.turn_counts = with(row.spec.turn_counts, token);
  }
}

// A step of at most kMostTokens.
void DeviceEngine::RunPass(const StepPlan& plan) {
  Step& step = current();
  step.known = step.timed = step.waits_for_host = false;
  step.recording = nullptr;
  step.pending.clear();
  step.confined.clear();
  step.promised.clear();
  NoteTails(plan, step);
  step.on_host = RowsForHost(plan, kMostEdits);
  step.head_follows = HeadFollows(plan);
  step.result = CheckRows(plan, vocab_size(), capacity(), /*promises=*/true);
  step.result.head_followed = step.head_follows;
  HeadMarks& marks = states_->head_marks();
  for (const StepRow& row : plan.rows) marks.NoteStep(row.segment, step.head_follows);
  Run(plan);
  if (step.pending.empty()) return TakeSamples(step);
  // The next step finds on the device only what the device sampled.
  if (step.waits_for_host) Finish(step).IgnoreError();  // Await reports it
}

// Not for rows alone of which the head lacks earlier tokens.
bool DeviceEngine::HeadFollows(const StepPlan& plan) const {
  return predictor_ != nullptr && plan.head_follows &&
         std::any_of(plan.rows.begin(), plan.rows.end(), [&](const StepRow& row) {
           return states_->head_marks().KnowsAllBefore(row.segment);
         });
}

// A step of more tokens than one pass takes: passes of as many rows as fit, one after the other.
// Bits do not depend on a row's neighbours.
void DeviceEngine::RunInParts(const StepPlan& plan) {
  StepResult all;
  Step& step = current();
  for (size_t first = 0; first < plan.rows.size();) {
    StepPlan part;
    part.head_follows = plan.head_follows;
    size_t page_slots = 0;
    for (; first < plan.rows.size(); ++first) {
      const Segment& segment = plan.rows[first].segment;
      page_slots += PageSlots(segment);
      const bool fits =
          part.tokens.size() + segment.tokens <= kMostTokens && page_slots <= page_slots_;
      if (!part.empty() && !fits) break;
      part.rows.push_back(plan.rows[first]);
      part.rows.back().segment.first_token = part.tokens.size();
      const auto begin = plan.tokens.begin() + static_cast<ptrdiff_t>(segment.first_token);
      part.tokens.insert(part.tokens.end(), begin, begin + static_cast<ptrdiff_t>(segment.tokens));
    }
    RunPass(part);
    const absl::Status status = Finish(step);
    if (!status.ok()) FailRows(step, status);
    std::move(step.result.rows.begin(), step.result.rows.end(), std::back_inserter(all.rows));
    all.replays += step.result.replays;
    all.head_followed = all.head_followed || step.result.head_followed;
    all.device_seconds += device_->SecondsBetween(step.begin_event, step.end_event);
  }
  step.result = std::move(all);
  NoteTails(plan, step);
  step.pending.clear();
  step.known = step.timed = true;
}

bool DeviceEngine::SleepTowardsEnd(StepTicket ticket, std::chrono::nanoseconds before) {
  const Step& step = StepOf(ticket);
  if (!step.known && step.recording != nullptr) {
    SleepUntil(std::max(step.begun, last_end_) + times_.Sleep(KindOf(step)) - before);
  }
  return !step.known;
}

// The device's own wait polls, so the thread sleeps first if it is known how long.
absl::Status DeviceEngine::WaitFor(const Step& step) {
  if (!step.known && step.recording != nullptr) {
    SleepUntil(std::max(step.begun, last_end_) + times_.Sleep(KindOf(step)));
  }
  const absl::Status status = device_->Wait(step.end_event);
  last_end_ = StepTimes::Clock::now();
  return status;
}

size_t DeviceEngine::KindOf(const Step& step) const {
  return step.recording - step.recordings.data();
}

// Of a step that has ended.
void DeviceEngine::LearnTime(Step& step) {
  if (step.timed) return;
  step.result.device_seconds = device_->SecondsBetween(step.begin_event, step.end_event);
  if (step.recording == nullptr) return;
  const std::chrono::duration<double> took(step.result.device_seconds);
  times_.Learn(KindOf(step), std::chrono::duration_cast<StepTimes::Clock::duration>(took));
}

// Waits for the step and takes its samples, unless the device failed.
absl::Status DeviceEngine::Finish(Step& step) {
  failure_.Update(Failed(WaitFor(step)));
  RIVULET_RETURN_IF_ERROR(failure_);
  TakeSamples(step);
  return absl::OkStatus();
}

// REQUIRES: the step has run, or sampled on the host alone.
void DeviceEngine::TakeSamples(Step& step) {
  if (std::exchange(step.known, true)) return;
  for (const PendingAnswer& pending : step.pending) {
    TakeAnswer(pending, step.buffers.results[pending.index], step.buffers.logprobs[pending.index],
               vocab_size(), step.result);
  }
  for (size_t r = 0; r < step.tails.size(); ++r) {
    const RowResult& row = step.result.rows[r];
    if (!row.samples.empty()) last_sampled_[step.tails[r]] = row.samples.back().token;
  }
}

StepResult DeviceEngine::Await(StepTicket ticket) {
  RIVULET_CHECK(ticket == awaited_ + 1 && ticket <= launched_, "no such step, or not the oldest");
  awaited_ = ticket;
  Step& step = StepOf(ticket);
  const absl::Status status = Finish(step);
  if (!status.ok()) FailRows(step, status);
  for (const size_t r : step.promised) {
    if (!failed_tails_.contains(step.tails[r])) continue;
    step.result.rows[r].status.Update(absl::InternalError("the step before failed"));
  }
  failed_tails_.clear();
  for (size_t r = 0; r < step.tails.size(); ++r) {
    if (!step.result.rows[r].status.ok()) failed_tails_.insert(step.tails[r]);
  }
  if (status.ok()) LearnTime(step);
  return std::move(step.result);
}

void DeviceEngine::NoteTails(const StepPlan& plan, Step& step) {
  step.tails.clear();
  for (const StepRow& row : plan.rows) step.tails.push_back(row.segment.tail);
}

void DeviceEngine::FailRows(Step& step, const absl::Status& status) {
  for (RowResult& row : step.result.rows) row.status.Update(status);
}

// Whether each row has one token and wants its sample alone.
bool DeviceEngine::IsDecode(const StepPlan& plan) {
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const StepRow& row = plan.rows[r];
    const bool decodes = row.segment.tokens == 1 && row.samples == 1 && row.score_targets.empty() &&
                         current().result.rows[r].status.ok();
    if (!decodes) return false;
  }
  return true;
}

// Recordings have blocks for as many segments as tokens, which cost more than they save where the
// segments are few.
bool DeviceEngine::HasLongSegments(const StepPlan& plan) {
  constexpr size_t kAnyLength = 16, kMostOfASegment = 4;
  return plan.tokens.size() > std::max(kAnyLength, kMostOfASegment * plan.rows.size());
}

// Null: no recording does what the plan asks.
const DeviceEngine::Recording* DeviceEngine::RecordingFor(const StepPlan& plan, uint32_t singles) {
  // The host samples from logits that are there after the step: not more than a block of them.
  const std::vector<bool>& on_host = current().on_host;
  const bool host = std::find(on_host.begin(), on_host.end(), true) != on_host.end();
  const bool decodes = (!host || plan.rows.size() <= kLogitRows) && IsDecode(plan);
  if (!decodes && singles >= kLeastApart) return nullptr;
  // Where folds write bases of their own, the description has a table that recordings do not read.
  if (!decodes && (ExtentsOf(plan).fold_bases || HasLongSegments(plan))) return nullptr;
  const auto fits = [&](const Recording& recording) {
    return recording.decodes == decodes && recording.head_follows == current().head_follows &&
           plan.tokens.size() <= recording.tokens && plan.rows.size() <= recording.tokens;
  };
  const std::vector<Recording>& recordings = current().recordings;
  const auto found = std::find_if(recordings.begin(), recordings.end(), fits);
  return found == recordings.end() ? nullptr : &*found;
}

// The rows of one token that come first, each with the token of its number.
uint32_t DeviceEngine::LeadingSingles(const StepPlan& plan) {
  const auto is_single = [&](size_t r) {
    const Segment& segment = plan.rows[r].segment;
    return segment.tokens == 1 && segment.first_token == r;
  };
  uint32_t count = 0;
  while (count < plan.rows.size() && is_single(count)) ++count;
  return count;
}

// Of a step that is not recorded and begins with so many rows of one token.
DeviceRows DeviceEngine::PlainRows(const StepPlan& plan, const StepDescription& there,
                                   uint32_t singles) const {
  const auto tokens = static_cast<uint32_t>(plan.tokens.size());
  DeviceRows rows = RowsOf(there, tokens, static_cast<uint32_t>(plan.rows.size()), false);
  if (singles == tokens) {
    rows.single = true;
    rows.fold_bases = nullptr;  // a single fold writes base_out
  } else if (singles >= kLeastApart) {
    rows.decodes = singles;
  }
  return rows;
}

DeviceRows DeviceEngine::RowsOf(const StepDescription& there, uint32_t tokens, uint32_t segments,
                                bool single) const {
  return {there.segments(), there.segment_of(), segments, tokens, single, there.fold_bases()};
}

// Of a step that is not recorded.
StepDescription::Extents DeviceEngine::ExtentsOf(const StepPlan& plan) const {
  StepDescription::Extents extents = ExtentsOf(plan.tokens.size(), plan.rows.size());
  extents.fold_bases = std::any_of(plan.rows.begin(), plan.rows.end(), [](const StepRow& row) {
    return row.segment.fold_bases != nullptr;
  });
  return extents;
}

std::array<DevicePages, kMaxPageKinds> DeviceEngine::PagesOf(const StepDescription& there) const {
  std::array<DevicePages, kMaxPageKinds> pages;
  for (size_t kind = 0; kind < capacity().pages.size(); ++kind) {
    pages[kind] = there.Pages(kind, capacity().pages[kind]);
  }
  return pages;
}

DeviceModel::Stream DeviceEngine::Forward(const StepDescription& there, const DeviceRows& rows,
                                          bool head_follows) {
  const std::array<DevicePages, kMaxPageKinds> pages = PagesOf(there);
  const DeviceModel::Tokens step{there.ids(), rows, last_tokens_, pages};
  DeviceModel::Stream stream = model_->Forward(step, *states_);
  if (!head_follows) return stream;
  model_->AddUp(stream);
  stream.residual = nullptr;
  predictor_->Follow(step, stream.x, *states_);
  return stream;
}

// Entries of page tables.
size_t DeviceEngine::PageSlots(const Segment& segment) const {
  size_t count = 0;
  for (size_t kind = 0; segment.pages != nullptr && kind < capacity().pages.size(); ++kind) {
    count += StepDescription::PageSlots(segment, kind, capacity().pages[kind]);
  }
  return count;
}

size_t DeviceEngine::PageSlots(const StepPlan& plan) const {
  size_t count = 0;
  for (const StepRow& row : plan.rows) count += PageSlots(row.segment);
  return count;
}

// Fills the pinned description. `recording`: whose extents it has; null: those of the plan.
// `singles`: LeadingSingles.
StepDescription DeviceEngine::Describe(const StepPlan& plan, const Recording* recording,
                                       uint32_t singles) {
  const size_t tokens = recording == nullptr ? plan.tokens.size() : recording->tokens;
  StepDescription here(current().buffers.here,
                       recording == nullptr ? ExtentsOf(plan) : ExtentsOf(tokens, tokens));
  std::memset(current().buffers.here, 0, here.bytes());
  for (size_t t = 0; t < tokens; ++t) {
    // Padding belongs to the last segment, which is empty wherever there is padding.
    const bool decodes = recording != nullptr && recording->decodes;
    here.segment_of()[t] = static_cast<uint32_t>(decodes ? t : tokens - 1);
    here.place_tokens()[t] = static_cast<uint32_t>(t);
    here.draws()[t] = {};
  }
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const Segment& s = plan.rows[r].segment;
    DeviceSegment& segment = here.segments()[r];
    segment = {static_cast<uint32_t>(s.first_token),
               static_cast<uint32_t>(s.tokens),
               s.position,
               s.base_in,
               s.base_out,
               s.tail,
               0};
    // Of a row that cannot run, no token is looked at: its ids may be outside of the vocabulary.
    const bool runs = current().result.rows[r].status.ok();
    if (!runs) segment.tokens = 0;
    for (size_t kind = 0; runs && kind < capacity().pages.size(); ++kind) {
      here.AddPages(r, s, kind, capacity().pages[kind]);
    }
    if (here.fold_bases() != nullptr) here.SetFoldBases(s, capacity().fold_interval);
    for (size_t i = 0; i < s.tokens; ++i) {
      if (runs) here.ids()[s.first_token + i] = plan.tokens[s.first_token + i];
      here.segment_of()[s.first_token + i] = static_cast<uint32_t>(r);
    }
  }
  SetTurns({here.segments(), singles}, capacity().fold_interval);
  return here;
}

void DeviceEngine::Run(const StepPlan& plan) {
  model_->Reset();
  Step& step = current();
  device_->Record(step.begin_event);
  const uint32_t singles = LeadingSingles(plan);
  step.recording = RecordingFor(plan, singles);
  const std::vector<Place> places = PlacesOf(plan, step.result);
  StepDescription here = Describe(plan, step.recording, singles);
  if (step.recording == nullptr) {
    RunPlain(plan, places, singles, here);
  } else if (step.recording->decodes) {
    RunDecodes(plan, places, *step.recording, here);
  } else {
    RunRecorded(plan, places, *step.recording, here);
  }
  device_->Record(step.end_event);
  step.begun = StepTimes::Clock::now();
}

void DeviceEngine::SendDescription(const StepPlan& plan, std::span<const Place> places,
                                   StepDescription& here) {
  AddDraws(plan, places, here);
  const Buffers& buffers = current().buffers;
  // What the step in flight is told lies elsewhere.
  if (launched_ == awaited_) {
    device_->CopyToDevice(buffers.there, buffers.here, here.bytes());
  } else {
    device_->CopyAhead(buffers.there, buffers.here, here.bytes());
  }
}

void DeviceEngine::RunDecodes(const StepPlan& plan, std::span<const Place> places,
                              const Recording& recording, StepDescription& here) {
  for (size_t i = 0; i < places.size(); ++i) {
    // Place i is token i only if the rows' tokens are in order, which a plan of decode rows has.
    RIVULET_CHECK(places[i].token == i, "the tokens of decode rows are not in order");
  }
  SendDescription(plan, places, here);
  device_->Replay(recording.number);
  ++current().result.replays;
  const FloatMatrix logits{logits_, places.size(), model_->vocab(), model_->vocab()};
  DrawLate(plan, places, logits, here);
  AnswerOnHost(plan, places, logits);
}

void DeviceEngine::RunRecorded(const StepPlan& plan, std::span<const Place> places,
                               const Recording& recording, StepDescription& here) {
  SendDescription(plan, places, here);
  device_->Replay(recording.number);
  ++current().result.replays;
  model_->workspace().ReturnTo(recording.workspace);
  Answer(plan, places, recording.stream, here,
         {current().buffers.there, ExtentsOf(recording.tokens, recording.tokens)});
}

void DeviceEngine::RunPlain(const StepPlan& plan, std::span<const Place> places, uint32_t singles,
                            StepDescription& here) {
  SendDescription(plan, places, here);
  const StepDescription there(current().buffers.there, ExtentsOf(plan));
  const DeviceModel::Stream stream =
      Forward(there, PlainRows(plan, there, singles), current().head_follows);
  if (!places.empty()) model_->AddUp(stream);
  Answer(plan, places, stream, here, there);
}

// The logits of the places and what is drawn from them. REQUIRES: the stream is added up.
void DeviceEngine::Answer(const StepPlan& plan, std::span<const Place> places,
                          const DeviceModel::Stream& stream, StepDescription& here,
                          const StepDescription& there) {
  for (size_t begin = 0; begin < places.size(); begin += kLogitRows) {
    const size_t count = std::min(kLogitRows, places.size() - begin);
    const FloatMatrix logits{logits_, count, model_->vocab(), model_->vocab()};
    EnqueueAnswers(stream, there, begin, logits, current().buffers);
    DrawLate(plan, places, logits, here);
    AnswerOnHost(plan, places.subspan(begin, count), logits);
  }
  if (!model_->status().ok()) FailRows(current(), model_->status());
}

// The logits of places from `begin` on, and what is drawn from them. REQUIRES: the stream is added
// up.
void DeviceEngine::EnqueueAnswers(const DeviceModel::Stream& stream, const StepDescription& there,
                                  size_t begin, FloatMatrix logits, const Buffers& buffers) {
  const FloatMatrix wanted = model_->workspace().Take(logits.rows, model_->hidden());
  device_->GatherRows({.x = stream.x,
                       .tokens = there.place_tokens() + begin,
                       .count = static_cast<uint32_t>(logits.rows),
                       .y = wanted});
  model_->Logits({wanted, {}}, logits);
  EnqueueSampling(logits, there.draws(), there, begin, buffers);
}

// Tells the device what to draw and what to give back at each place.
void DeviceEngine::AddDraws(const StepPlan& plan, std::span<const Place> places,
                            StepDescription& here) {
  Step& step = current();
  for (size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    here.place_tokens()[i] = static_cast<uint32_t>(place.token);
    if (step.on_host[place.row]) {
      step.waits_for_host = true;
      continue;
    }
    const SampleRow draw = DrawOf(plan, place, edit_writer_, here);
    if (place.sample != Place::kNone && plan.rows[place.row].spec.grammar != nullptr) {
      step.confined.push_back({i, draw});
      continue;
    }
    here.draws()[i] = draw;
    ExpectAnswer(plan, place, i, here.draws()[i], here);
  }
  if (!DrawsLate(places)) AddConfinedDraws(plan, places, here.draws(), here);
}

// Notes what the device will give back at a place.
void DeviceEngine::ExpectAnswer(const StepPlan& plan, Place place, size_t index, SampleRow& draw,
                                const StepDescription& here) {
  if (draw.samples == 0) place.sample = Place::kNone;
  if (place.sample == Place::kNone && place.score == Place::kNone) {
    draw = {};
    return;
  }
  Step& step = current();
  step.pending.push_back(AnswerFor(plan, place, index));
  if (draw.mask == kNoMask) return;
  step.pending.back().mask = here.MaskOf(draw, MaskWords(vocab_));
}

// The draws of places `first` and further from their logits. `draws`: of all places.
void DeviceEngine::EnqueueSampling(FloatMatrix logits, const SampleRow* draws,
                                   const StepDescription& there, size_t first,
                                   const Buffers& buffers) {
  device_->Sample({.logits = logits,
                   .rows = draws + first,
                   .edits = there.edits(),
                   .masks = there.masks(),
                   .count = static_cast<uint32_t>(logits.rows),
                   .last_tokens = last_tokens_,
                   .results = buffers.results + first,
                   .logprobs = buffers.logprobs + first});
}

// Fetches the logits [places, vocab] of rows that the device does not sample, and answers as the
// CPU's engine does.
void DeviceEngine::AnswerOnHost(const StepPlan& plan, std::span<const Place> places,
                                FloatMatrix logits) {
  Step& step = current();
  std::vector<size_t> wanted;
  for (size_t i = 0; i < places.size(); ++i) {
    if (!step.on_host[places[i].row]) continue;
    wanted.push_back(i);
    device_->CopyToHost(logits_host_ + i * logits.columns, logits.row(i),
                        logits.columns * sizeof(float));
  }
  if (wanted.empty()) return;
  failure_.Update(Failed(device_->Synchronize()));
  if (!failure_.ok()) return FailRows(step, failure_);
  std::vector<absl::Status> statuses(wanted.size());
  threads_.ParallelFor(wanted.size(), [&](size_t k) {
    const Place& place = places[wanted[k]];
    const std::span<float> row(logits_host_ + wanted[k] * logits.columns, logits.columns);
    try {
      statuses[k] = AnswerPlace(plan, place, row, step.result.rows[place.row]);
    } catch (const std::bad_alloc&) {  // no exception may leave a task of the pool
      statuses[k] = NoMemory("while sampling");
    }
  });
  for (size_t k = 0; k < wanted.size(); ++k) {
    if (statuses[k].ok()) continue;
    const Place& place = places[wanted[k]];
    const uint64_t position = PositionOf(plan.rows[place.row], place);
    NoteFailure(At(statuses[k], place, position), place, step.result.rows[place.row]);
  }
}

}  // namespace rivulet
