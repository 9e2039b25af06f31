// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Rewinds to every position of a session, with the defaults of --keep-borders and --prompt-borders:
// what is computed again, and the bits of what follows.
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

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

INSTANTIATE_TEST_SUITE_P(Models, RewindTest, testing::ValuesIn(AllTestModels()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rivulet
