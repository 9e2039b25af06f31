// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Rows that sample after several of their tokens: they must give what feeding the same tokens one
// at a time gives, bit for bit, wherever the row begins and ends.
#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/recurrence/pages.h"
#include "nlohmann/json.hpp"
#include "server/engine/cpu_engine.h"
#include "server/engine/random_model.h"
#include "server/engine/same_logprobs.h"
#include "server/engine/slot_bytes.h"
#include "server/engine/test_models.h"

namespace rivulet {
namespace {

constexpr uint32_t kVocab = 101;  // of the test models
constexpr size_t kTokens = 150;   // several chunks
constexpr size_t kPrompt = 5;     // of them; the others are this turn's
constexpr uint32_t kMinTokens = 40;
constexpr size_t kLongestRow = 16;

// The slots of one session, fed with given tokens.
class Stream {
 public:
  Stream(Engine& engine, const std::vector<uint32_t>& tokens, const SamplingParams& params)
      : engine_(engine), tokens_(tokens), params_(params) {
    base_ = *engine.states().bases().Acquire();
    tail_ = *engine.states().tails().Acquire();
    std::ranges::fill(BaseBytes(engine.states(), base_), std::byte{0xff});
    for (size_t kind = 0; kind < engine.capacity().pages.size(); ++kind) {
      tables_.emplace_back(engine.capacity().pages[kind].kind, engine.states().pages(kind));
    }
    planned_.resize(tables_.size());
  }
  ~Stream() {
    engine_.states().bases().Release(base_);
    engine_.states().tails().Release(tail_);
  }

  size_t position() const { return position_; }
  size_t left() const { return tokens_.size() - position_; }

  // The next `count` tokens, with a sample after each of the last `samples` and, if `scores`, the
  // score of token 7 after each of the first.
  void AddRow(StepPlan& plan, size_t count, size_t samples, bool scores) {
    StepRow& row = plan.rows.emplace_back();
    for (size_t kind = 0; kind < tables_.size(); ++kind) {
      planned_[kind] = *tables_[kind].Plan(position_, count);
    }
    row.segment = {plan.tokens.size(), count, position_, base_, base_, tail_, planned_.data()};
    plan.tokens.insert(plan.tokens.end(), tokens_.begin() + position_,
                       tokens_.begin() + position_ + count);
    if (scores) row.score_targets.assign(1 + count / 2, 7);
    row.samples = static_cast<uint32_t>(samples);
    row.spec.params = &params_;
    row.spec.logprobs = 3;
    row.spec.index = 2;
    row.spec.position = position_ + count - samples + 1;
    CountUpTo(row.spec.position);
    row.spec.session_counts = &session_counts_;
    row.spec.turn_counts = &turn_counts_;
    row.spec.stop_ids = &kStopIds;
    const uint64_t generated = row.spec.position - kPrompt;
    if (row.spec.position < kPrompt + kMinTokens) row.spec.forbid_stops = kMinTokens - generated;
  }

  void Advance(size_t count) {
    for (PageTable& table : tables_) table.Commit();
    position_ += count;
  }

 private:
  inline static const std::vector<uint32_t> kStopIds = {3, 30, 60, 90};

  void CountUpTo(size_t end) {
    // A row without samples may end where the tokens do.
    for (; counted_ < std::min(end, tokens_.size()); ++counted_) {
      session_counts_.Add(tokens_[counted_]);
      if (counted_ >= kPrompt) turn_counts_.Add(tokens_[counted_]);
    }
  }

  Engine& engine_;
  const std::vector<uint32_t>& tokens_;
  const SamplingParams& params_;
  uint32_t base_ = 0, tail_ = 0;
  std::vector<PageTable> tables_;
  std::vector<SegmentPages> planned_;
  size_t position_ = 0, counted_ = 0;
  TokenCounts session_counts_, turn_counts_;
};

class RowSamplesTest : public testing::TestWithParam<TestModel> {
 protected:
  void SetUp() override {
    auto model = MakeRandomModel(nlohmann::json::parse(GetParam().config), 1, LoadOptions());
    ASSERT_TRUE(model.ok()) << model.status();
    auto engine = MakeCpuEngine(*model, {.threads = 2});
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    for (uint32_t& token : tokens_) token = Below(kVocab);
    params_.seed = random_();
    params_.repetition_penalty = 1.3f;
    params_.frequency_penalty = 0.4f;
    params_.presence_penalty = -0.3f;
    params_.top_k = 60;
    // So that a sample is a stop id now and then, unless those are forbidden.
    params_.logit_bias = {{3, 2.0f}, {30, 2.0f}, {60, 2.0f}, {90, 2.0f}};
    OneAtATime();
  }

  uint32_t Below(size_t limit) { return static_cast<uint32_t>(random_() % limit); }

  // expected_[i]: what token i and those before it give; nothing before the end of the prompt.
  void OneAtATime() {
    Stream stream(*engine_, tokens_, params_);
    expected_.resize(kTokens);
    for (size_t i = 0; i < kTokens; ++i) {
      StepPlan plan;
      stream.AddRow(plan, 1, i + 1 < kPrompt ? 0 : 1, false);
      const RowResult result = engine_->Step(plan).rows[0];
      ASSERT_TRUE(result.status.ok()) << result.status;
      if (!result.samples.empty()) expected_[i] = result.samples[0];
      stream.Advance(1);
    }
  }

  // As many of a row's tokens as may be sampled and a random limit allow.
  size_t Samples(size_t position, size_t count) {
    const size_t end = position + count;
    if (end < kPrompt) return 0;
    const size_t most = std::min(count, end - kPrompt + 1);
    return Below(3) == 0 ? Below(most + 1) : most;
  }

  void ExpectSame(const RowResult& result, size_t end) {
    ASSERT_TRUE(result.status.ok()) << result.status;
    for (size_t i = 0; i < result.samples.size(); ++i) {
      const size_t token = end - result.samples.size() + i;
      SCOPED_TRACE(token);
      ASSERT_EQ(result.samples[i].token, expected_[token].token);
      ASSERT_TRUE(Same(result.samples[i].logprob, expected_[token].logprob));
    }
  }

  std::unique_ptr<Engine> engine_;
  std::mt19937_64 random_{TestSeed()};
  std::vector<uint32_t> tokens_ = std::vector<uint32_t>(kTokens);
  SamplingParams params_;
  std::vector<SampledToken> expected_;
};

// Three sessions in each step, cut at different places.
TEST_P(RowSamplesTest, RowsOfAnyLengthGiveTheBitsOfOneTokenAtATime) {
  size_t compared = 0;
  for (int round = 0; round < 12 && !HasFatalFailure(); ++round) {
    std::vector<std::unique_ptr<Stream>> streams;
    for (int i = 0; i < 3; ++i) {
      streams.push_back(std::make_unique<Stream>(*engine_, tokens_, params_));
    }
    while (streams[0]->left() + streams[1]->left() + streams[2]->left() > 0) {
      StepPlan plan;
      std::vector<Stream*> members;
      for (const auto& stream : streams) {
        if (stream->left() == 0) continue;
        const size_t count = 1 + Below(std::min(kLongestRow, stream->left()));
        stream->AddRow(plan, count, Samples(stream->position(), count), Below(4) == 0);
        members.push_back(stream.get());
      }
      const StepResult result = engine_->Step(plan);
      for (size_t m = 0; m < members.size(); ++m) {
        ASSERT_EQ(result.rows[m].samples.size(), plan.rows[m].samples);
        members[m]->Advance(plan.rows[m].segment.tokens);
        ExpectSame(result.rows[m], members[m]->position());
        compared += result.rows[m].samples.size();
      }
    }
  }
  EXPECT_GT(compared, 12 * kTokens);
}

// What the test above rests on: the stop ids are drawn, and min_tokens forbids them.
TEST_P(RowSamplesTest, StopIdsComeAfterMinTokensAlone) {
  int stops = 0;
  for (size_t i = 0; i < kTokens; ++i) {
    const bool stop = expected_[i].token % 30 == 0 || expected_[i].token == 3;
    if (i + 1 < kPrompt) continue;
    if (i + 1 - kPrompt < kMinTokens) {
      EXPECT_FALSE(stop && expected_[i].token != 0) << i;
    } else {
      stops += stop && expected_[i].token != 0;
    }
  }
  EXPECT_GT(stops, 0);
}

constexpr auto kModelName = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Models, RowSamplesTest, testing::ValuesIn(AllTestModels()), kModelName);

}  // namespace
}  // namespace rivulet
