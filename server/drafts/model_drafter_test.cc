// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/drafts/model_drafter.h"

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "nlohmann/json.hpp"
#include "server/engine/cpu_engine.h"
#include "server/engine/random_model.h"
#include "server/engine/test_models.h"
#include "server/grammar/list_tokenizer_fixture.h"
#include "server/session/session.h"

namespace rivulet {
namespace {

using testing::HasSubstr;
using Tokens = std::vector<uint32_t>;
constexpr uint32_t kVocab = 101;  // of the test models
constexpr uint64_t kContext = 1024;

absl::StatusOr<std::unique_ptr<ModelSource>> Source(const TestModel& test, Metrics& metrics) {
  const auto model = MakeRandomModel(nlohmann::json::parse(test.config), 1, LoadOptions());
  EngineOptions options;
  options.state_memory = uint64_t{64} << 20;
  return ModelSource::Make(*MakeCpuEngine(*model, options), kContext, metrics);
}

// As many as the scheduler would ask for in a chunk of 16.
Tokens Guess(Drafter& drafter, const TokenSequence& tokens, size_t most) {
  std::array<float, kMostDrafts> chances;
  const size_t left = 15 - tokens.size() % 16;
  const size_t count = drafter.Outlook(tokens, std::span(chances).first(std::min(most, left)));
  Tokens drafts;
  if (count > 0) drafter.Draft(tokens, count, drafts);
  return drafts;
}

// Of sessions that only hold tokens.
StateCapacity SmallStates() {
  StateLayout layout;
  layout.Add(StatePart::kBase, "x", DType::kFloat32, {1});
  layout.Add(StatePart::kTail, "x", DType::kFloat32, {1});
  const StateLayout* const layouts[] = {&layout};
  return AddUpLayouts(layouts);
}

void AppendRandom(Session& session, size_t count, std::mt19937_64& random) {
  for (; count > 0; --count) session.Append(static_cast<uint32_t>(random() % kVocab));
}

size_t IndexOf(const std::vector<std::unique_ptr<Drafter>>& drafters, const Drafter* drafter) {
  const auto is_same = [drafter](const auto& one) { return one.get() == drafter; };
  return static_cast<size_t>(std::find_if(drafters.begin(), drafters.end(), is_same) -
                             drafters.begin());
}

class ModelDrafterTest : public testing::TestWithParam<TestModel> {};

// What it guesses depends on the tokens alone: guesses that were wrong leave nothing behind.
TEST_P(ModelDrafterTest, WrongGuessesAreForgotten) {
  std::mt19937_64 random(TestSeed());
  Metrics metrics;
  const auto source = Source(GetParam(), metrics);
  if (!source.ok()) {
    EXPECT_THAT(std::string(source.status().message()), HasSubstr("cannot forget"));
    return;
  }
  SamplingParams sampling;
  sampling.seed = random();
  const auto drafter = (*source)->MakeDrafter({&sampling, 1});
  TokenSequence tokens{std::make_shared<TokenLedger>()};
  tokens.Append(Tokens{5, 6, 7});
  size_t compared = 0;
  while (tokens.size() < 230) {
    const Tokens guesses = Guess(*drafter, tokens, random() % 16);
    ASSERT_EQ(Guess(*(*source)->MakeDrafter({&sampling, 1}), tokens, guesses.size()), guesses);
    compared += guesses.size();
    // Asked again, it says the same.
    ASSERT_EQ(Guess(*drafter, tokens, guesses.size()), guesses);
    const size_t right = random() % (guesses.size() + 1);
    tokens.Append(std::span(guesses).first(right));
    const bool more = right < guesses.size() && random() % 2 == 0;
    tokens.Append(more ? guesses[right] : static_cast<uint32_t>(random() % kVocab));
  }
  EXPECT_GT(compared, 50u);
}

// Side by side they guess what each guesses alone.
TEST_P(ModelDrafterTest, CompletionsAreDraftedTogether) {
  std::mt19937_64 random(TestSeed());
  Metrics metrics;
  const auto source = Source(GetParam(), metrics);
  if (!source.ok()) return;
  SamplingParams sampling;
  sampling.seed = random();
  const auto states = *StatePool::Make(SmallStates(), 1 << 20);
  std::vector<std::unique_ptr<Drafter>> drafters;
  std::vector<std::unique_ptr<Session>> sessions;
  for (uint32_t i = 0; i < 5; ++i) {
    drafters.push_back((*source)->MakeDrafter({&sampling, i}));
    sessions.push_back(Session::CreateAtRest(*states, std::make_shared<TokenLedger>()));
    AppendRandom(*sessions[i], 1 + random() % 400, random);
  }
  for (int round = 0; round < 12; ++round) {
    std::vector<DraftAsk> asks;
    for (size_t i = 0; i < drafters.size(); ++i) {
      if (random() % 3 == 0) continue;
      std::array<float, kMostDrafts> chances;
      const size_t most = drafters[i]->Outlook(sessions[i]->tokens(), chances);
      if (most > 0) asks.push_back({drafters[i].get(), sessions[i].get(), 1 + random() % most});
    }
    (*source)->Prepare(asks);
    for (const DraftAsk& ask : asks) {
      Tokens drafts, alone;
      ask.drafter->Draft(ask.session->tokens(), ask.count, drafts);
      ASSERT_EQ(drafts.size(), ask.count);
      const auto index = static_cast<uint32_t>(IndexOf(drafters, ask.drafter));
      (*source)->MakeDrafter({&sampling, index})->Draft(ask.session->tokens(), ask.count, alone);
      ASSERT_EQ(alone, drafts);
      ask.session->Append(std::span(drafts).first(random() % (drafts.size() + 1)));
      AppendRandom(*ask.session, 1, random);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ModelDrafterTest, testing::ValuesIn(AllTestModels()),
                         [](const auto& info) { return info.param.name; });

TEST(ModelSourceTest, ACompletionWithoutASlotGetsNoDrafts) {
  Metrics metrics;
  const auto source = Source(AllTestModels()[0], metrics);
  ASSERT_TRUE(source.ok());
  SamplingParams sampling;
  std::vector<std::unique_ptr<Drafter>> drafters;
  while (auto drafter = (*source)->MakeDrafter({&sampling, 0})) {
    drafters.push_back(std::move(drafter));
  }
  EXPECT_GT(drafters.size(), 1u);
  EXPECT_GT(metrics.draft_memory_bytes.value(), 0);
  EXPECT_LE(metrics.draft_memory_bytes.value(), 64 << 20);
  drafters.pop_back();
  EXPECT_NE((*source)->MakeDrafter({&sampling, 0}), nullptr);
  drafters.clear();
  EXPECT_EQ(metrics.draft_memory_bytes.value(), 0);
}

TEST(VocabularyTest, OfAnotherSizeIsRefused) {
  EXPECT_TRUE(CheckSameVocabulary(nullptr, 96, nullptr, 96).ok());
  const absl::Status other = CheckSameVocabulary(nullptr, 96, nullptr, 97);
  EXPECT_THAT(std::string(other.message()), testing::AllOf(HasSubstr("96"), HasSubstr("97")));
}

TEST(VocabularyTest, OfOtherTokensIsRefused) {
  const ListTokenizer target({"a", "b", "c"}), same({"a", "b"}), other({"a", "c", "b"});
  EXPECT_TRUE(CheckSameVocabulary(&target, 3, &target, 3).ok());
  EXPECT_TRUE(CheckSameVocabulary(&target, 3, &same, 3).ok()) << "as far as both know tokens";
  EXPECT_TRUE(CheckSameVocabulary(&target, 3, nullptr, 3).ok());
  const absl::Status refused = CheckSameVocabulary(&target, 3, &other, 3);
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_EQ(refused.message(), "token 1 is \"c\" there and \"b\" in the model");
}

}  // namespace
}  // namespace rivulet
