// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/cpu_engine.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/status.h"
#include "kernels/base/thread_pool.h"
#include "kernels/recurrence/pages.h"
#include "server/engine/predictor.h"
#include "server/engine/row_answers.h"
#include "server/engine/state_pool.h"

namespace rivulet {
namespace {

// Logits exist for this many places at a time, so that scoring a long prompt over a large
// vocabulary takes bounded memory. As many as the decode rows of a busy step, so that those are one
// block.
constexpr size_t kLogitRows = 64;

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
    std::vector<const StateLayout*> layouts = model_.StateLayouts();
    if (model_.model().predictor != nullptr) {
      predictor_.emplace(model_);
      for (const StateLayout* layout : predictor_->StateLayouts()) layouts.push_back(layout);
    }
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

  bool guesses() const override { return predictor_.has_value(); }
  GuessResult Guess(const GuessPlan& plan) override {
    const auto start = std::chrono::steady_clock::now();
    GuessResult result;
    step_workspace_.Reset();
    try {
      result.status = predictor_->Guess(plan, *states_, Lend(), result);
    } catch (const std::bad_alloc&) {
      result.status = NoMemory("while guessing tokens");
    }
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }

  size_t depth() const override { return 1; }
  StatePool& states() const override { return *states_; }
  uint32_t vocab_size() const override { return static_cast<uint32_t>(model_.vocab()); }

 private:
  StepResult Run(const StepPlan& plan) {
    StepResult result = CheckRows(plan, vocab_size(), capacity());
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

  LanguageModel::Lent Lend() { return {&layer_workspace_, &step_workspace_, &threads_, profile_}; }
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
    RIVULET_RETURN_IF_ERROR(model_.Forward(ids_, segments_, *states_, Lend(), x));
    if (!predictor_.has_value()) return absl::OkStatus();
    return predictor_->Follow(ids_, segments_, x, *states_, Lend());
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
      const uint64_t position = PositionOf(plan.rows[row], places[i]);
      NoteFailure(At(statuses[i], places[i], position), places[i], result.rows[row]);
    }
    if (profile_) profile_->Lap(StepProfile::kSampling);
  }

  LanguageModel model_;
  std::optional<Predictor> predictor_;
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
