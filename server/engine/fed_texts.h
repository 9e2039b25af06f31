// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// For tests: texts that an engine is fed in pieces of any length, alone or in company, and what it
// says after each token.
#ifndef RIVULET_SERVER_ENGINE_FED_TEXTS_H_
#define RIVULET_SERVER_ENGINE_FED_TEXTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ops/sampling/sampling.h"
#include "kernels/recurrence/pages.h"
#include "server/engine/engine.h"
#include "server/engine/same_logprobs.h"
#include "server/engine/state_pool.h"
#include "server/engine/step_plan.h"

namespace rivulet {

// Best tokens in each answer.
inline constexpr uint32_t kTop = 20;

// What a model says after each token of a text: the log-probabilities of the best tokens and of one
// that is given.
using Answers = std::vector<Logprobs>;

// A session's pages of every kind that an engine's states have.
class StreamPages {
 public:
  explicit StreamPages(StatePool& states) {
    const std::vector<PageCapacity>& kinds = states.capacity().pages;
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      tables_.emplace_back(kinds[kind].kind, states.pages(kind));
    }
  }

  // For the next segment. The one before it has been launched: a step takes its tables along.
  const SegmentPages* Plan(uint64_t position, size_t tokens) {
    planned_.clear();
    for (PageTable& table : tables_) {
      table.Commit();
      planned_.push_back(*table.Plan(position, tokens));
    }
    return planned_.data();
  }

 private:
  std::vector<PageTable> tables_;
  std::vector<SegmentPages> planned_;
};

// A session's slots on an engine.
class Stream {
 public:
  explicit Stream(Engine& engine) : engine_(engine), pages_(engine.states()) {
    base_ = *engine.states().bases().Acquire();
    tail_ = *engine.states().tails().Acquire();
    params_.temperature = 0.0f;
  }
  ~Stream() {
    engine_.states().bases().Release(base_);
    engine_.states().tails().Release(tail_);
  }

  // Adds the next tokens to the plan, with a sample after each of the last `samples`.
  void Add(StepPlan& plan, const std::vector<uint32_t>& tokens, size_t count, size_t samples) {
    StepRow& row = plan.rows.emplace_back();
    row.segment = {plan.tokens.size(),           count, position_, base_, base_, tail_,
                   pages_.Plan(position_, count)};
    plan.tokens.insert(plan.tokens.end(), tokens.begin() + position_,
                       tokens.begin() + position_ + count);
    row.samples = static_cast<uint32_t>(samples);
    row.spec.params = &params_;
    row.spec.logprobs = kTop;
    row.spec.position = position_ + count - samples + 1;
    position_ += count;
  }
  uint64_t position() const { return position_; }

 private:
  Engine& engine_;
  StreamPages pages_;
  SamplingParams params_;
  uint32_t base_ = 0, tail_ = 0;
  uint64_t position_ = 0;
};

inline void Collect(const RowResult& row, Answers& answers) {
  EXPECT_TRUE(row.status.ok()) << row.status;
  for (const SampledToken& sample : row.samples) answers.push_back(sample.logprob);
}

// The answers of a text that is fed in pieces of `piece` tokens.
inline Answers Feed(Engine& engine, const std::vector<uint32_t>& tokens, size_t piece) {
  Stream stream(engine);
  Answers answers;
  while (stream.position() < tokens.size()) {
    const size_t count = std::min(piece, tokens.size() - stream.position());
    StepPlan plan;
    stream.Add(plan, tokens, count, count);
    Collect(engine.Step(plan).rows[0], answers);
  }
  return answers;
}

// The same for several texts in steps of random rows.
inline std::vector<Answers> FeedTogether(Engine& engine,
                                         const std::vector<std::vector<uint32_t>>& texts,
                                         size_t longest, std::mt19937& random) {
  std::vector<std::unique_ptr<Stream>> streams;
  for (size_t i = 0; i < texts.size(); ++i) streams.push_back(std::make_unique<Stream>(engine));
  std::vector<Answers> answers(texts.size());
  for (bool left = true; left;) {
    StepPlan plan;
    std::vector<size_t> owners;
    left = false;
    for (size_t i = 0; i < texts.size(); ++i) {
      const size_t rest = texts[i].size() - streams[i]->position();
      if (rest == 0) continue;
      left = true;
      if (random() % 4 == 0) continue;
      const size_t count = std::min<size_t>(rest, 1 + random() % longest);
      streams[i]->Add(plan, texts[i], count, count);
      owners.push_back(i);
    }
    if (plan.empty()) continue;
    const StepResult result = engine.Step(plan);
    for (size_t r = 0; r < owners.size(); ++r) Collect(result.rows[r], answers[owners[r]]);
  }
  return answers;
}

// Whether the answers are the first ones of a text, bit for bit.
inline bool BeginsWith(const Answers& whole, const Answers& first) {
  return first.size() <= whole.size() &&
         std::equal(first.begin(), first.end(), whole.begin(),
                    [](const Logprobs& a, const Logprobs& b) { return Same(a, b); });
}

// As FeedTogether, for texts that are fed token by token, and a last one that is fed in random
// pieces beside them and begins again when it ends. Rows of one token come first, as in the
// scheduler's plans.
inline std::vector<Answers> FeedBeside(Engine& engine,
                                       const std::vector<std::vector<uint32_t>>& texts,
                                       size_t longest, std::mt19937& random) {
  std::vector<std::unique_ptr<Stream>> streams;
  for (size_t i = 0; i < texts.size(); ++i) streams.push_back(std::make_unique<Stream>(engine));
  std::vector<Answers> answers(texts.size());
  const size_t last = texts.size() - 1;
  while (streams[0]->position() < texts[0].size()) {
    StepPlan plan;
    for (size_t i = 0; i < last; ++i) streams[i]->Add(plan, texts[i], 1, 1);
    if (streams[last]->position() == texts[last].size()) {
      streams[last].reset();
      streams[last] = std::make_unique<Stream>(engine);
      answers[last].clear();
    }
    const size_t rest = texts[last].size() - streams[last]->position();
    const size_t count = std::min<size_t>(rest, 1 + random() % longest);
    streams[last]->Add(plan, texts[last], count, count);
    const StepResult result = engine.Step(plan);
    for (size_t r = 0; r < texts.size(); ++r) Collect(result.rows[r], answers[r]);
  }
  return answers;
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_FED_TEXTS_H_
