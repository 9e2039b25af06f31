// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/language_model.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/mixers/allocation_counter.h"
#include "nlohmann/json.hpp"
#include "server/engine/random_model.h"
#include "server/engine/slot_bytes.h"
#include "server/engine/test_models.h"

namespace rivulet {
namespace {

using Logits = std::vector<float>;  // [T, vocab]

class LanguageModelTest : public testing::TestWithParam<TestModel> {
 protected:
  static constexpr size_t kTokens = 3 * kFoldInterval + 5;

  void SetUp() override {
    auto model = MakeRandomModel(nlohmann::json::parse(GetParam().config), 1, LoadOptions());
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = std::make_unique<LanguageModel>(*model);
    const auto layouts = model_->StateLayouts();
    states_ = *StatePool::Make(AddUpLayouts(layouts), 64 << 20);
  }

  std::vector<uint32_t> RandomTokens(std::mt19937& random, size_t count) const {
    std::vector<uint32_t> tokens(count);
    for (uint32_t& token : tokens) token = random() % model_->vocab();
    return tokens;
  }

  // A fresh session's slots. They hold NaN until something is written, so reading there shows.
  Segment NewSession() {
    Segment segment;
    segment.base_in = segment.base_out = *states_->bases().Acquire();
    segment.tail = *states_->tails().Acquire();
    std::ranges::fill(BaseBytes(*states_, segment.base_in), std::byte{0xff});
    std::ranges::fill(TailBytes(*states_, segment.tail), std::byte{0xff});
    return segment;
  }

  // One step; appends its logits, row by row.
  void Step(std::span<const uint32_t> tokens, std::span<const Segment> segments, size_t threads,
            Logits& logits) {
    ThreadPool pool(threads);
    Workspace step, layer;
    const LanguageModel::Lent lent{&layer, &step, &pool};
    const FloatMatrix x = step.Take(tokens.size(), model_->hidden());
    ASSERT_TRUE(model_->Forward(tokens, segments, *states_, lent, x).ok());
    const FloatMatrix rows = step.Take(tokens.size(), model_->vocab());
    model_->Logits(x, lent, rows);
    for (size_t t = 0; t < rows.rows; ++t) {
      logits.insert(logits.end(), rows.row(t), rows.row(t) + rows.columns);
    }
  }

  // Logits of every token of one session, fed in pieces of next_piece(tokens left) tokens.
  template <typename NextPiece>
  Logits Run(std::span<const uint32_t> tokens, size_t threads, NextPiece&& next_piece) {
    Logits logits;
    Segment segment = NewSession();
    while (segment.position < tokens.size()) {
      segment.tokens = next_piece(tokens.size() - segment.position);
      Step(tokens.subspan(segment.position, segment.tokens), {&segment, 1}, threads, logits);
      segment.position += segment.tokens;
    }
    states_->bases().Release(segment.base_in);
    states_->tails().Release(segment.tail);
    return logits;
  }
  Logits RunWhole(std::span<const uint32_t> tokens) {
    return Run(tokens, 1, [](size_t left) { return left; });
  }

  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<StatePool> states_;
};

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TEST_P(LanguageModelTest, LogitsAreFiniteAndNotAllTheSame) {
  std::mt19937 random(1);
  const Logits logits = RunWhole(RandomTokens(random, kTokens));
  for (float logit : logits) ASSERT_TRUE(std::isfinite(logit));
  EXPECT_FALSE(SameBits({logits.data(), model_->vocab()},
                        {logits.data() + model_->vocab(), model_->vocab()}));
}

TEST_P(LanguageModelTest, DecodeGivesTheBitsOfPrefill) {
  std::mt19937 random(TestSeed());
  const std::vector<uint32_t> tokens = RandomTokens(random, kTokens);
  const Logits whole = RunWhole(tokens);
  EXPECT_TRUE(SameBits(whole, Run(tokens, 1, [](size_t) { return 1; })));
  EXPECT_TRUE(SameBits(whole, Run(tokens, 3, [](size_t) { return 1; })));
}

TEST_P(LanguageModelTest, AnyCutAndAnyThreadsGiveTheSameBits) {
  std::mt19937 random(TestSeed());
  const std::vector<uint32_t> tokens = RandomTokens(random, kTokens);
  const Logits whole = RunWhole(tokens);
  for (int round = 0; round < 20; ++round) {
    const size_t threads = 1 + round % 4;
    EXPECT_TRUE(SameBits(whole, Run(tokens, threads, [&](size_t left) {
                           return 1 + random() % std::min<size_t>(left, 24);
                         })));
  }
}

TEST_P(LanguageModelTest, NeighboursAndFoldingElsewhereChangeNoBit) {
  std::mt19937 random(TestSeed());
  const std::vector<uint32_t> a = RandomTokens(random, kTokens), b = RandomTokens(random, kTokens);
  const Logits alone = RunWhole(a);
  const size_t cut = kFoldInterval + 3;
  Segment first = NewSession(), second = NewSession();
  Logits mixed;
  std::vector<uint32_t> tokens(b.begin(), b.begin() + 7);
  tokens.insert(tokens.end(), a.begin(), a.begin() + cut);
  second.tokens = 7;
  first.first_token = 7;
  first.tokens = cut;
  Step(tokens, std::vector<Segment>{first, second}, 2, mixed);
  mixed.erase(mixed.begin(), mixed.begin() + 7 * model_->vocab());

  // The rest of `a`, its base folded into a slot full of rubbish.
  first.first_token = 0;
  first.position = cut;
  first.tokens = kTokens - cut;
  first.base_out = *states_->bases().Acquire();
  const std::span<std::byte> out = BaseBytes(*states_, first.base_out);
  std::memset(out.data(), 0xff, out.size());
  const std::vector<std::byte> before = {BaseBytes(*states_, first.base_in).begin(),
                                         BaseBytes(*states_, first.base_in).end()};
  Step({a.data() + cut, first.tokens}, {&first, 1}, 2, mixed);
  EXPECT_TRUE(SameBits(alone, mixed));
  const std::span<std::byte> after = BaseBytes(*states_, first.base_in);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin())) << "a shared slot changed";
}

TEST_P(LanguageModelTest, DecodeAllocatesNothing) {
  std::mt19937 random(1);
  const std::vector<uint32_t> tokens = RandomTokens(random, 4 * kFoldInterval);
  ThreadPool pool(2);
  Workspace step, layer;
  const LanguageModel::Lent lent{&layer, &step, &pool};
  const FloatMatrix x = step.Take(1, model_->hidden());
  const FloatMatrix logits = step.Take(1, model_->vocab());
  Segment segment = NewSession();
  segment.tokens = 1;
  uint64_t before = AllocationCount();
  for (; segment.position < tokens.size(); ++segment.position) {
    if (segment.position == kFoldInterval) before = AllocationCount();
    const std::span<const uint32_t> token(&tokens[segment.position], 1);
    ASSERT_TRUE(model_->Forward(token, {&segment, 1}, *states_, lent, x).ok());
    model_->Logits(x, lent, logits);
  }
  EXPECT_EQ(AllocationCount(), before);
}

INSTANTIATE_TEST_SUITE_P(Models, LanguageModelTest, testing::ValuesIn(TestModels()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rivulet
