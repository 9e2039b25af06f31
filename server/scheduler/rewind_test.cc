// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Rewinds to every position of a session, with the defaults of --keep-borders and --prompt-borders:
// what is computed again, and the bits of what follows.
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "nlohmann/json.hpp"
#include "server/engine/random_model.h"
#include "server/engine/test_models.h"
#include "server/log/log.h"
#include "server/scheduler/stack_fixture.h"

namespace rivulet {
namespace {

constexpr uint32_t kVocab = 101;  // of the test models
constexpr Borders kDefault = {kAutomaticBorders, kAutomaticBorders};

class RewindTest : public testing::TestWithParam<TestModel> {
 protected:
  void SetUp() override {
    SetLogLevel("error");
    const auto model = MakeRandomModel(nlohmann::json::parse(GetParam().config), 1, LoadOptions());
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
    alone_ = std::make_unique<Stack>(*model, 1, 1, random_());
    stack_ = std::make_unique<Stack>(*model, 2, 1, random_(), 8, uint64_t{1} << 30, DraftOptions(),
                                     0, kDefault);
  }
  void TearDown() override { SetLogLevel("info"); }

  const Received& RunTurn(const Ask& ask) {
    return stack_->Run(ask, *stack_->sessions().LeaseForTurn("a")).received[0];
  }
  void Converse(size_t prompt, uint32_t answer) {
    Ask ask;
    for (size_t i = 0; i < prompt; ++i) ask.prompt.push_back(random_() % kVocab);
    ask.max_tokens = answer;
    ask.stop.ignore_eos = true;
    RunTurn(ask);
  }

  std::mt19937_64 random_{TestSeed()};
  std::shared_ptr<const LoadedModel> model_;
  std::unique_ptr<Stack> alone_, stack_;
};

TEST_P(RewindTest, EveryPositionComputesFifteenTokensAgainAndHasTheBits) {
  ASSERT_TRUE(stack_->sessions().Create("a", "").ok());
  Converse(150, 50);
  Converse(60, 40);
  Ask whole;
  whole.prompt = stack_->TokensOf("a");
  whole.score_prompt = true;
  ASSERT_EQ(whole.prompt.size(), 300u);
  const std::vector<Logprobs> expected = alone_->Run(whole).received[0].prompt_logprobs;
  ASSERT_EQ(expected.size(), 299u);
  const bool any_border = stack_->states().capacity().fold_bases;
  for (uint64_t position = 299; position > 0; --position) {
    const auto rewound = stack_->sessions().Rewind("a", position);
    ASSERT_TRUE(rewound.ok()) << rewound.status();
    Ask next;
    next.prompt = {whole.prompt[position]};
    next.score_prompt = true;
    const Received& got = RunTurn(next);
    EXPECT_TRUE(Same(got.prompt_logprobs, {expected[position - 1]})) << position;
    const uint64_t again = position - 1 - got.usage.cached_tokens;
    // Where folds rewrite pages, prompts leave states only where steps end.
    const bool answer = position > 210 || (position > 150 && position <= 200);
    if (any_border || answer) {
      ASSERT_LE(again, 15u) << position;
    }
    stack_->ForgetClients();
  }
  EXPECT_EQ(stack_->metrics().borders_dropped.value(), 0u);
}

// The first turn began with a state of the prefix cache.
TEST_P(RewindTest, ASessionThatBeganFromTheCacheGoesBackToItsStart) {
  const uint64_t memory = uint64_t{1} << 30;
  Stack stack(model_, 2, 1, random_(), 8, memory, DraftOptions(), memory / 2, kDefault);
  Ask ask;
  for (size_t i = 0; i < 150; ++i) ask.prompt.push_back(random_() % kVocab);
  ask.max_tokens = 1;
  ask.stop.ignore_eos = true;
  ask.logprobs = 2;
  const Received expected = stack.Run(ask).received[0];
  ASSERT_TRUE(stack.sessions().Create("a", "").ok());
  const auto turn = [&] { return stack.Run(ask, *stack.sessions().LeaseForTurn("a")).received[0]; };
  EXPECT_EQ(turn().usage.cached_tokens, 144u);
  EXPECT_THAT(stack.sessions().Get("a")->kept_positions, testing::ElementsAre(0));
  // After the border that the cache had, before it, and at the start.
  const std::vector<uint32_t> prompt = ask.prompt;
  for (const uint64_t position : {148, 100, 0}) {
    const auto rewound = stack.sessions().Rewind("a", position);
    ASSERT_TRUE(rewound.ok()) << rewound.status();
    ask.prompt.assign(prompt.begin() + static_cast<ptrdiff_t>(position), prompt.end());
    const Received got = turn();
    ExpectSame(got, expected);
    if (position == 148) {
      EXPECT_EQ(got.usage.cached_tokens, 144u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RewindTest, testing::ValuesIn(AllTestModels()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rivulet
