// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/fake_run_ahead.h"

#include <utility>

#include "absl/status/status.h"
#include "kernels/base/check.h"
#include "server/engine/fake_engine.h"

namespace rivulet {

class OrderedMemory::Memory final : public StateMemory {
 public:
  explicit Memory(OrderedMemory& owner) : owner_(owner) {}
  absl::Status Reserve(size_t bytes) override { return memory_.Reserve(bytes); }
  std::byte* begin() const override { return memory_.begin(); }
  void Copy(size_t from, size_t to, size_t bytes) override {
    if (owner_.before_) owner_.before_();
    memory_.Copy(from, to, bytes);
  }

 private:
  OrderedMemory& owner_;
  HostStateMemory memory_;
};

std::unique_ptr<StateMemory> OrderedMemory::Make() { return std::make_unique<Memory>(*this); }

StepTicket RunAheadEngine::Launch(const StepPlan& plan) {
  RIVULET_CHECK(launched_.size() < depth(), "more steps are launched than the engine runs ahead");
  CheckFolds(plan, states());
  const bool ahead = !launched_.empty();
  launched_.emplace_back().ahead = ahead;
  Own(plan, launched_.back().owned);
  if (!lazy_) RunLaunched();
  return oldest_ + launched_.size() - 1;
}

StepResult RunAheadEngine::Await(StepTicket ticket) {
  RIVULET_CHECK(!launched_.empty() && ticket == oldest_, "no such step, or not the oldest");
  Run(launched_.front());
  StepResult result = std::move(launched_.front().result);
  launched_.pop_front();
  ++oldest_;
  return result;
}

void RunAheadEngine::RunLaunched() {
  for (Launched& step : launched_) Run(step);
}

void RunAheadEngine::Run(Launched& step) {
  if (std::exchange(step.ran, true)) return;
  StepPlan& plan = step.owned.plan;
  step.result.rows.resize(plan.rows.size());
  std::vector<size_t> running;
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    if (step.ahead && FollowsFailure(plan.rows[r].segment)) {
      step.result.rows[r].status = absl::InternalError("the step before failed");
    } else {
      running.push_back(r);
    }
  }
  StepPlan below;
  below.tokens = plan.tokens;
  below.head_follows = plan.head_follows;
  for (const size_t r : running) below.rows.push_back(plan.rows[r]);
  Resolve(step.owned, below);
  StepResult result = engine_.Step(below);
  step.result.head_followed = result.head_followed;
  failed_.clear();
  for (size_t i = 0; i < running.size(); ++i) {
    const Segment& segment = below.rows[i].segment;
    const RowResult& row = step.result.rows[running[i]] = std::move(result.rows[i]);
    if (!row.status.ok()) failed_[segment.tail] = segment.position + segment.tokens;
    if (!row.samples.empty()) last_sampled_[segment.tail] = row.samples.back().token;
  }
}

// A segment planned after a cancelled one starts where that one started.
bool RunAheadEngine::FollowsFailure(const Segment& segment) const {
  const auto failed = failed_.find(segment.tail);
  return failed != failed_.end() && failed->second == segment.position;
}

void RunAheadEngine::Own(const StepPlan& plan, OwnedPlan& owned) {
  owned.plan = plan;
  for (StepRow& row : owned.plan.rows) {
    if (row.samples > 0) OwnSpec(row.spec, owned);
    if (row.segment.pages != nullptr) OwnPages(row.segment, owned);
    if (row.segment.fold_bases != nullptr) OwnFoldBases(row.segment, owned);
  }
}

void RunAheadEngine::OwnSpec(SampleSpec& spec, OwnedPlan& owned) {
  spec.params = &owned.params.emplace_back(*spec.params);
  for (const TokenCounts** counts : {&spec.session_counts, &spec.turn_counts}) {
    *counts = &owned.counts.emplace_back(*counts != nullptr ? **counts : TokenCounts());
  }
  if (spec.grammar != nullptr) spec.grammar = &owned.grammars.emplace_back(*spec.grammar);
  if (spec.stop_ids != nullptr) spec.stop_ids = &owned.ids.emplace_back(*spec.stop_ids);
}

void RunAheadEngine::OwnFoldBases(Segment& segment, OwnedPlan& owned) const {
  const size_t folds = FoldsIn(segment.position, segment.tokens, capacity().fold_interval);
  segment.fold_bases =
      owned.ids.emplace_back(segment.fold_bases, segment.fold_bases + folds).data();
}

void RunAheadEngine::OwnPages(Segment& segment, OwnedPlan& owned) {
  const StateCapacity& capacity = this->capacity();
  const size_t folds = FoldsIn(segment.position, segment.tokens, capacity.fold_interval);
  owned.pages.emplace_back(segment.pages, segment.pages + capacity.pages.size());
  segment.pages = owned.pages.back().data();
  for (size_t kind = 0; kind < capacity.pages.size(); ++kind) {
    SegmentPages& pages = owned.pages.back()[kind];
    const bool fenwick = capacity.pages[kind].kind.fenwick();
    const size_t count = fenwick ? (folds + 1) * pages.levels : pages.count;
    pages.slots = owned.ids.emplace_back(pages.slots, pages.slots + count).data();
  }
}

// The engine below knows no promises: it gets the tokens, and counts that have them.
void RunAheadEngine::Resolve(OwnedPlan& owned, StepPlan& plan) {
  for (const StepRow& row : plan.rows) {
    uint32_t& token = plan.tokens[row.segment.first_token];
    if (token != kLastSampled) continue;
    RIVULET_CHECK(row.samples == row.segment.tokens, "a promised token before one without sample");
    RIVULET_CHECK(row.spec.grammar == nullptr, "a promised token that the row's grammar lacks");
    ++promised_rows;
    token = last_sampled_.at(row.segment.tail);
    for (TokenCounts& counts : owned.counts) {
      if (&counts == row.spec.session_counts || &counts == row.spec.turn_counts) counts.Add(token);
    }
  }
}

}  // namespace rivulet
