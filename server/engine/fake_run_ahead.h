// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// For tests: an engine of depth 2 over one of depth 1, as a device that runs ahead of the host. The
// slots are those of the engine below.
//
// Lazy: a launched step runs as late as it may: when it is awaited, or when the memory of the
// states is touched by the host. So it sees what Launch copied, and not what has become of the
// originals. The engine below must then have been made with an OrderedMemory. Not lazy: a step runs
// when it is launched, and its results wait.
//
// Threading: as Engine.
#ifndef RIVULET_SERVER_ENGINE_FAKE_RUN_AHEAD_H_
#define RIVULET_SERVER_ENGINE_FAKE_RUN_AHEAD_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/engine/engine.h"
#include "server/grammar/token_grammar.h"

namespace rivulet {

// Gives host memory to an engine, and calls `before` whenever the host is about to touch it.
class OrderedMemory {
 public:
  // Must not outlive this.
  std::unique_ptr<StateMemory> Make();
  void set_before(std::function<void()> before) { before_ = std::move(before); }

 private:
  class Memory;
  std::function<void()> before_;
};

class RunAheadEngine : public Engine {
 public:
  RunAheadEngine(Engine& engine, bool lazy) : engine_(engine), lazy_(lazy) {}

  StepTicket Launch(const StepPlan& plan) override;
  StepResult Await(StepTicket ticket) override;
  size_t depth() const override { return 2; }
  StatePool& states() const override { return engine_.states(); }
  uint32_t vocab_size() const override { return engine_.vocab_size(); }
  bool guesses() const override { return engine_.guesses(); }
  GuessResult Guess(const GuessPlan& plan) override {
    RunLaunched();
    return engine_.Guess(plan);
  }

  // Runs what has been launched.
  void RunLaunched();

  // Rows that fed kLastSampled, for tests that count.
  size_t promised_rows = 0;

 private:
  // A plan with all that it points to.
  struct OwnedPlan {
    StepPlan plan;
    std::deque<SamplingParams> params;
    std::deque<TokenCounts> counts;
    std::deque<GrammarMatcher> grammars;
    std::deque<std::vector<uint32_t>> ids;
    std::deque<std::vector<SegmentPages>> pages;
  };
  struct Launched {
    OwnedPlan owned;
    bool ahead = false;  // launched while the step before was in flight
    bool ran = false;
    StepResult result;
  };

  void Own(const StepPlan& plan, OwnedPlan& owned);
  void OwnSpec(SampleSpec& spec, OwnedPlan& owned);
  void OwnPages(Segment& segment, OwnedPlan& owned);
  void OwnFoldBases(Segment& segment, OwnedPlan& owned) const;
  void Resolve(OwnedPlan& owned, StepPlan& plan);
  void Run(Launched& step);
  bool FollowsFailure(const Segment& segment) const;

  Engine& engine_;
  const bool lazy_;
  std::deque<Launched> launched_;
  StepTicket oldest_ = 0;
  std::unordered_map<uint32_t, uint32_t> last_sampled_;  // by tail
  // Of the rows that failed in the last step that ran: where their segments ended, by tail.
  std::unordered_map<uint32_t, uint64_t> failed_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_FAKE_RUN_AHEAD_H_
