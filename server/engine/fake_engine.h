// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// An Engine for tests of the folders above: real slots, and a "model" whose state is a hash of the
// tokens in a base and the tokens since then in a tail. It obeys every rule of Engine and checks
// which slots a row writes, and its samples show whether the right tokens of the right session were
// fed. No weights, no kernels, no threads.
//
// The token sampled after tokens t0..tn is FakeEngine::NextToken({t0..tn}, index), unless a test
// fixes `next_token`.
#ifndef RIVULET_SERVER_ENGINE_FAKE_ENGINE_H_
#define RIVULET_SERVER_ENGINE_FAKE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "server/engine/engine.h"
#include "server/engine/state_pool.h"

namespace rivulet {

// Ends the test if a row of the plan folds into a base that another session holds too.
void CheckFolds(const StepPlan& plan, StatePool& states);

class FakeEngine : public Engine {
 public:
  static constexpr uint32_t kVocab = 100;

  // Room for `sessions` sessions and the spare bases that StatePool adds. `pages`: the kinds
  // of pages that its one layer each would have, for sessions of `context` tokens; every step
  // checks that the pages it is given hold the session's chunks.
  explicit FakeEngine(uint32_t sessions, const std::vector<PageKind>& pages = {},
                      uint64_t context = 4096, size_t fold_interval = 16,
                      std::unique_ptr<StateMemory> memory = std::make_unique<HostStateMemory>());

  // What a session's state says of the tokens it has seen.
  static uint64_t Hash(std::span<const uint32_t> tokens);
  static uint32_t NextToken(std::span<const uint32_t> tokens, uint32_t index);

  StepTicket Launch(const StepPlan& plan) override;
  StepResult Await(StepTicket ticket) override;
  size_t depth() const override { return 1; }
  StatePool& states() const override { return *pool_; }
  uint32_t vocab_size() const override { return kVocab; }

  // Hash of the first `tokens` tokens of a session: its base, and `tail_tokens` rows of its tail.
  // The base is not read if all of them are in the tail.
  uint64_t StateHash(uint64_t tokens, uint32_t base, uint32_t tail, size_t tail_tokens) const;

  // Whether Launch calls CheckFolds. Below an engine that runs steps late, that one has to.
  bool checks_folds = true;
  // Steps run so far, for tests that count.
  size_t steps = 0;
  // If set: called for each row of a step; a status that is not OK fails that row.
  std::function<absl::Status(const StepRow&)> fail_row;
  // If set: what a row samples (one token).
  std::function<uint32_t(const StepRow&)> next_token;

 private:
  SampledToken SampleAfter(const StepRow& row, uint64_t hash) const;
  RowResult RunRow(const StepPlan& plan, const StepRow& row);
  void FoldPages(const Segment& segment);

  std::unique_ptr<StatePool> pool_;
  StepResult result_;  // of the last launched step
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_FAKE_ENGINE_H_
