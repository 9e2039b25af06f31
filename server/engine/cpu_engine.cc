// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/cpu_engine.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status.h"
#include "kernels/base/thread_pool.h"
#include "kernels/ops/sampling/sampling.h"
#include "kernels/recurrence/pages.h"
#include "server/engine/state_pool.h"

namespace rivulet {
namespace {

// Logits exist for this many places at a time, so that scoring a long prompt over a large
// vocabulary takes bounded memory. As many as the decode rows of a busy step, so that those are one
// block.
constexpr size_t kLogitRows = 64;

// A token of the step whose logits are needed.
struct Place {
  static constexpr size_t kNone = SIZE_MAX;
  size_t row = 0;         // in StepPlan::rows
  size_t token = 0;       // in StepPlan::tokens
  size_t score = kNone;   // in StepRow::score_targets
  size_t sample = kNone;  // of StepRow::samples
};

std::vector<Place> PlacesOf(const StepPlan& plan, const StepResult& result) {
  std::vector<Place> places;
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const StepRow& row = plan.rows[r];
    if (!result.rows[r].status.ok()) continue;
    const size_t scores = row.score_targets.size();
    const size_t first_sample = row.segment.tokens - row.samples;
    const size_t first_place = places.size();
    for (size_t i = 0; i < scores; ++i) places.push_back({r, row.segment.first_token + i, i});
    for (size_t i = first_sample; i < row.segment.tokens; ++i) {
      if (i >= scores) places.push_back({r, row.segment.first_token + i});
      (i >= scores ? places.back() : places[first_place + i]).sample = i - first_sample;
    }
  }
  return places;
}

// Takes the stop ids out of the draw while it lives. The value is finite, so that the logit does
// not count as broken, and so low that no bias or penalty brings it back.
class Forbidden {
 public:
  Forbidden(const SampleSpec& spec, size_t sample, std::span<float> logits) : logits_(logits) {
    if (sample >= spec.forbid_stops || spec.stop_ids == nullptr) return;
    for (uint32_t id : *spec.stop_ids) {
      if (id >= logits.size()) continue;
      saved_.emplace_back(id, logits[id]);
      logits[id] = -1e30f;
    }
  }
  ~Forbidden() {
    // Backwards, so that an id that is listed twice gets its first value.
    for (auto entry = saved_.rbegin(); entry != saved_.rend(); ++entry) {
      logits_[entry->first] = entry->second;
    }
  }

 private:
  std::span<float> logits_;
  std::vector<std::pair<uint32_t, float>> saved_;
};

// The row's tokens that its counts lack: those after the first sample, up to this one.
std::span<const uint32_t> RecentTokens(const StepPlan& plan, const StepRow& row, size_t sample) {
  const size_t end = row.segment.first_token + row.segment.tokens - row.samples + 1 + sample;
  return std::span(plan.tokens).subspan(end - sample, sample);
}

absl::Status SamplePlace(const StepPlan& plan, const Place& place, std::span<float> logits,
                         SampledToken& result) {
  const StepRow& row = plan.rows[place.row];
  const SampleSpec& spec = row.spec;
  // One for each thread of the pool, reused in each step.
  static thread_local SamplingScratch scratch;
  {
    const Forbidden forbidden(spec, place.sample, logits);
    const TokenHistory history = {spec.session_counts, spec.turn_counts,
                                  RecentTokens(plan, row, place.sample)};
    RIVULET_ASSIGN_OR_RETURN(
        result.token,
        Sample(logits, *spec.params, history, {spec.index, spec.position + place.sample}, scratch));
  }
  if (spec.logprobs == 0) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(result.logprob,
                           ChosenAndTopLogprobs(logits, result.token, spec.logprobs));
  return absl::OkStatus();
}

absl::Status AnswerPlace(const StepPlan& plan, const Place& place, std::span<float> logits,
                         RowResult& result) {
  const StepRow& row = plan.rows[place.row];
  if (place.score != Place::kNone) {
    RIVULET_ASSIGN_OR_RETURN(
        result.scores[place.score],
        ChosenAndTopLogprobs(logits, row.score_targets[place.score], row.score_top));
  }
  if (place.sample == Place::kNone) return absl::OkStatus();
  return SamplePlace(plan, place, logits, result.samples[place.sample]);
}

// The status of a place, with its position.
absl::Status At(const absl::Status& status, const StepRow& row, const Place& place) {
  const uint64_t position = row.segment.position + place.token - row.segment.first_token;
  return absl::Status(
      status.code(),
      absl::StrCat("row ", place.row, " of the step, after the token at position ", position, ": ",
                   status.message(), "; the session's state is lost: start a new one"));
}

absl::Status CheckIds(const char* what, std::span<const uint32_t> ids, uint32_t vocab) {
  for (uint32_t id : ids) {
    if (id < vocab) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        what, " ", id, " is outside of the vocabulary of ", vocab, " tokens: send ids below that"));
  }
  return absl::OkStatus();
}

absl::Status NoMemory(const char* when) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "the server ran out of memory ", when,
      "; the session's state is lost: start a new one, and give the server less --state-memory"));
}

StepResult OutOfMemory(const StepPlan& plan) {
  StepResult result;
  result.rows.resize(plan.rows.size());
  for (RowResult& row : result.rows) row.status = NoMemory("in a step");
  return result;
}

class CpuEngine final : public Engine {
 public:
  CpuEngine(std::shared_ptr<const LoadedModel> model, size_t threads, StepProfile* profile)
      : model_(std::move(model)), threads_(threads), profile_(profile) {}

  absl::Status Start(const EngineOptions& options) {
    const std::vector<const StateLayout*> layouts = model_.StateLayouts();
    RIVULET_ASSIGN_OR_RETURN(states_, StatePool::Make(AddUpLayouts(layouts), options.state_memory,
                                                      options.state_context));
    WarmUp();
    return absl::OkStatus();
  }

  // The step runs here: nothing of the plan has to be copied.
  StepTicket Launch(const StepPlan& plan) override {
    RIVULET_CHECK(!result_.has_value(), "a step was launched before the last one was awaited");
    const auto start = std::chrono::steady_clock::now();
    try {
      result_ = Run(plan);
    } catch (const std::bad_alloc&) {
      result_ = OutOfMemory(plan);
    }
    result_->device_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return ++launched_;
  }

  StepResult Await(StepTicket ticket) override {
    RIVULET_CHECK(ticket == launched_ && result_.has_value(), "no such step");
    return *std::exchange(result_, std::nullopt);
  }

  size_t depth() const override { return 1; }
  StatePool& states() const override { return *states_; }
  uint32_t vocab_size() const override { return static_cast<uint32_t>(model_.vocab()); }

 private:
  StepResult Run(const StepPlan& plan) {
    StepResult result = CheckRows(plan);
    step_workspace_.Reset();
    const FloatMatrix x = step_workspace_.Take(plan.tokens.size(), model_.hidden());
    const absl::Status status = Forward(plan, result, x);
    if (!status.ok()) {
      for (RowResult& row : result.rows) row.status.Update(status);
      return result;
    }
    const std::vector<Place> places = PlacesOf(plan, result);
    const size_t rows = std::min(kLogitRows, places.size());
    const FloatMatrix wanted = step_workspace_.Take(rows, model_.hidden());
    const FloatMatrix logits = step_workspace_.Take(rows, model_.vocab());
    for (size_t begin = 0; begin < places.size(); begin += rows) {
      const size_t count = std::min(rows, places.size() - begin);
      const std::span<const Place> block(places.data() + begin, count);
      for (size_t i = 0; i < count; ++i) {
        std::copy_n(x.row(block[i].token), x.columns, wanted.row(i));
      }
      model_.Logits(wanted.Rows(0, count), Lend(), logits.Rows(0, count));
      Answer(plan, block, logits, result);
    }
    return result;
  }

  LanguageModel::Lent Lend() { return {&layer_workspace_, &threads_, profile_}; }
  // The tokens that a first step may hold: no more than the model reaches, nor a fold if there is
  // no page for one.
  size_t WarmUpTokens() const {
    uint64_t tokens = std::min<uint64_t>(kLogitRows, model_.model().max_tokens());
    for (const PageCapacity& pages : capacity().pages) {
      if (pages.slots < MostPages(pages.kind, tokens, tokens)) {
        tokens = std::min<uint64_t>(tokens, capacity().fold_interval - 1);
      }
    }
    return tokens;
  }

  void WarmUp() {
    StepPlan plan;
    plan.tokens.assign(WarmUpTokens(), 0);
    std::vector<PageTable> tables;
    std::vector<SegmentPages> pages;
    for (size_t kind = 0; kind < capacity().pages.size(); ++kind) {
      tables.emplace_back(capacity().pages[kind].kind, states_->pages(kind));
      pages.push_back(*tables.back().Plan(0, plan.tokens.size()));
    }
    StepRow& row = plan.rows.emplace_back();
    row.segment.tokens = plan.tokens.size();
    row.segment.base_in = row.segment.base_out = *states_->bases().Acquire();
    row.segment.tail = *states_->tails().Acquire();
    row.segment.pages = pages.data();
    row.score_targets.assign(plan.tokens.size(), 0);
    Step(plan);
    states_->bases().Release(row.segment.base_in);
    states_->tails().Release(row.segment.tail);
  }

  absl::Status CheckSegmentPages(const Segment& segment) const {
    const std::vector<PageCapacity>& kinds = capacity().pages;
    if (kinds.empty()) return absl::OkStatus();
    if (segment.pages == nullptr) return absl::InvalidArgumentError("the row has no page tables");
    absl::Status status;
    for (size_t kind = 0; kind < kinds.size() && status.ok(); ++kind) {
      status = CheckPages(kinds[kind].kind, segment.pages[kind], segment.position, segment.tokens);
    }
    return status;
  }

  StepResult CheckRows(const StepPlan& plan) const {
    StepResult result;
    result.rows.resize(plan.rows.size());
    for (size_t r = 0; r < plan.rows.size(); ++r) {
      const StepRow& row = plan.rows[r];
      RIVULET_CHECK(row.segment.first_token + row.segment.tokens <= plan.tokens.size() &&
                        row.score_targets.size() <= row.segment.tokens &&
                        row.samples <= row.segment.tokens,
                    "a row reaches past its tokens");
      RIVULET_CHECK(row.segment.tokens <= kLongestSegment, "a segment is longer than any may be");
      const uint32_t* first = plan.tokens.data() + row.segment.first_token;
      absl::Status& status = result.rows[r].status;
      status = CheckIds("token id", {first, row.segment.tokens}, vocab_size());
      status.Update(CheckIds("token id to score", row.score_targets, vocab_size()));
      status.Update(CheckSegmentPages(row.segment));
      result.rows[r].scores.resize(row.score_targets.size());
      result.rows[r].samples.resize(row.samples);
    }
    return result;
  }

  // Rows that have failed already are left out; their ids may be outside of the embedding table.
  absl::Status Forward(const StepPlan& plan, const StepResult& result, FloatMatrix x) {
    segments_.clear();
    ids_.assign(plan.tokens.size(), 0);
    for (size_t r = 0; r < plan.rows.size(); ++r) {
      if (!result.rows[r].status.ok()) continue;
      const Segment& segment = plan.rows[r].segment;
      segments_.push_back(segment);
      std::copy_n(plan.tokens.begin() + segment.first_token, segment.tokens,
                  ids_.begin() + segment.first_token);
    }
    if (segments_.empty()) return absl::OkStatus();
    return model_.Forward(ids_, segments_, *states_, Lend(), x);
  }

  void Answer(const StepPlan& plan, std::span<const Place> places, FloatMatrix logits,
              StepResult& result) {
    std::vector<absl::Status> statuses(places.size());
    threads_.ParallelFor(places.size(), [&](size_t i) {
      RowResult& row = result.rows[places[i].row];
      try {
        statuses[i] = AnswerPlace(plan, places[i], {logits.row(i), logits.columns}, row);
      } catch (const std::bad_alloc&) {  // no exception may leave a task of the pool
        statuses[i] = NoMemory("while sampling");
      }
    });
    for (size_t i = 0; i < places.size(); ++i) {
      if (statuses[i].ok()) continue;
      const size_t row = places[i].row;
      result.rows[row].status.Update(At(statuses[i], plan.rows[row], places[i]));
    }
    if (profile_) profile_->Lap(StepProfile::kSampling);
  }

  LanguageModel model_;
  ThreadPool threads_;
  StepProfile* profile_;
  std::unique_ptr<StatePool> states_;
  Workspace step_workspace_;   // reset after each step
  Workspace layer_workspace_;  // reset after each layer
  std::vector<uint32_t> ids_;
  std::vector<Segment> segments_;
  StepTicket launched_ = 0;
  std::optional<StepResult> result_;  // of the step that has not been awaited
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> MakeCpuEngine(std::shared_ptr<const LoadedModel> model,
                                                      const EngineOptions& options,
                                                      StepProfile* profile) {
  auto engine = std::make_unique<CpuEngine>(std::move(model), options.threads, profile);
  RIVULET_RETURN_IF_ERROR(engine->Start(options));
  return engine;
}

}  // namespace rivulet
