// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Same request, same answer, over real mixers and through the scheduler, with engines of depth 1
// and 2, without drafts and with them. A conversation in turns gives the bits of its whole context
// as one prompt, however it is split, also where a grammar confines some of its turns. Tokens,
// text, log-probabilities and finish reasons do not depend on other requests.
#include <algorithm>
#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "nlohmann/json.hpp"
#include "server/engine/random_model.h"
#include "server/engine/test_models.h"
#include "server/grammar/grammar_store.h"
#include "server/log/log.h"
#include "server/scheduler/oracle_drafter.h"
#include "server/scheduler/stack_fixture.h"
#include "server/text/detokenizer.h"

namespace rivulet {
namespace {

constexpr uint32_t kVocab = 101;  // of the test models

struct BitsParam {
  TestModel model;
  size_t depth;
  bool drafts;
};

class SchedulerBitsTest : public testing::TestWithParam<BitsParam> {
 protected:
  void SetUp() override {
    SetLogLevel("warning");
    auto model = MakeRandomModel(nlohmann::json::parse(GetParam().model.config), 1, WithHead());
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
    alone_ = std::make_unique<Stack>(model_, 1, 1, random_());
    oracle_ = std::make_unique<OracleSource>(model_, kVocab, random_());
    GrammarStore grammars(tokenizer_);
    words_ = *grammars.Get(GrammarKind::kRegex, "([a-hé]+( |[i-z]+))*");
  }

  std::unique_ptr<Stack> NewStack(size_t threads) {
    const DraftOptions drafts = GetParam().drafts ? oracle_->Options() : DraftOptions();
    auto stack = std::make_unique<Stack>(model_, threads, GetParam().depth, random_(), 0,
                                         uint64_t{1} << 30, drafts);
    oracle_->Bind(stack->engine());
    return stack;
  }
  // Some drafts were right and some were wrong, if there were any.
  void ExpectDrafts(Stack& stack) {
    const Metrics& metrics = stack.metrics();
    uint64_t drafted = 0, accepted = 0;
    for (const Counter& counter : metrics.draft_tokens) drafted += counter.value();
    for (const Counter& counter : metrics.accepted_draft_tokens) accepted += counter.value();
    const bool some = GetParam().drafts && !stack.states().capacity().running_tail;
    EXPECT_EQ(accepted > 0, some);
    EXPECT_EQ(drafted > accepted, some) << drafted << " " << accepted;
  }
  uint64_t Below(uint64_t limit) { return random_() % limit; }

  std::vector<uint32_t> RandomTokens(size_t count) {
    std::vector<uint32_t> tokens(count);
    for (uint32_t& token : tokens) token = static_cast<uint32_t>(Below(kVocab));
    return tokens;
  }

  std::shared_ptr<const LoadedModel> model_;
  std::mt19937_64 random_{TestSeed()};
  std::unique_ptr<Stack> alone_;  // for the runs that others are compared with
  std::unique_ptr<OracleSource> oracle_;
  const FakeTokenizer tokenizer_;
  std::shared_ptr<TokenGrammar> words_;  // of texts that never end by themselves
};

// ---- Conversations.

// One session: its turns so far, and the one that runs.
struct Conversation {
  std::string id;
  uint64_t seed = 0;
  size_t turns_left = 0;
  std::vector<uint32_t> context;
  Ask ask;
  bool scores = false;
  Client* client = nullptr;
};

class TurnsTest : public SchedulerBitsTest {
 protected:
  // The context ends before, on or after a chunk's border each other time.
  size_t PromptTokens(size_t context) {
    if (Below(2) == 0) return 1 + Below(40);
    const size_t border = (context / 16 + 1 + Below(2)) * 16;
    return std::max<size_t>(1, border + Below(3) - 1 - context);
  }

  void StartTurn(Stack& stack, Conversation& c) {
    c.scores = !c.context.empty() && Below(4) == 0;
    c.ask = Ask();
    c.ask.prompt = RandomTokens(PromptTokens(c.context.size()));
    if (!c.context.empty() && !c.scores && Below(8) == 0) c.ask.prompt.clear();
    c.ask.sampling.seed = c.seed;
    c.ask.sampling.repetition_penalty = 1.3f;
    c.ask.stop.ignore_eos = true;
    c.ask.logprobs = 3;
    c.ask.max_tokens = c.scores || Below(4) == 0 ? 0 : static_cast<uint32_t>(1 + Below(20));
    c.ask.score_prompt = c.scores || Below(3) == 0;
    c.ask.score_top = 2;
    if (Below(3) == 0) c.ask.grammar = words_;
    auto lease =
        c.scores ? stack.sessions().LeaseForReading(c.id) : stack.sessions().LeaseForTurn(c.id);
    ASSERT_TRUE(lease.ok()) << lease.status();
    c.client = &stack.Submit(c.ask, *std::move(lease));
    --c.turns_left;
  }

  // The same as a request of its own with the whole context as its prompt.
  void CheckTurn(Stack& stack, Conversation& c) {
    ASSERT_EQ(c.client->end, absl::OkStatus());
    Ask whole = c.ask;
    whole.prompt = c.context;
    whole.prompt.insert(whole.prompt.end(), c.ask.prompt.begin(), c.ask.prompt.end());
    Client& expected = alone_->Run(whole);
    Received& got = c.client->received[0];
    SCOPED_TRACE(testing::Message() << "context " << c.context.size() << " prompt "
                                    << c.ask.prompt.size() << " max " << c.ask.max_tokens);
    const size_t before = c.context.empty() ? 0 : c.context.size() - 1;
    auto& scores = expected.received[0].prompt_logprobs;
    if (c.ask.score_prompt) scores.erase(scores.begin(), scores.begin() + before);
    ASSERT_TRUE(Same(got.prompt_logprobs, scores));
    got.text = expected.received[0].text;  // differs where a character was cut by a turn's end
    ExpectSame(got, expected.received[0]);
    if (c.scores) return;
    c.context = whole.prompt;
    c.context.insert(c.context.end(), got.tokens.begin(), got.tokens.end());
    ASSERT_EQ(stack.TokensOf(c.id), c.context);
  }

  Conversation NewConversation(Stack& stack, size_t turns) {
    Conversation c;
    c.id = stack.sessions().Create("", "")->id;
    c.seed = random_();
    c.turns_left = turns;
    return c;
  }

  void RunConversations(Stack& stack, std::vector<Conversation> all) {
    for (Conversation& c : all) StartTurn(stack, c);
    bool running = true;
    while (running && !HasFatalFailure()) {
      // Not without end where steps take few prompt tokens: the queue would grow until it is full.
      if (all.size() > 1 && stack.before_first_token() < 16 && Below(12) == 0) {
        stack.Submit({.prompt = RandomTokens(1 + Below(90)),
                      .max_tokens = static_cast<uint32_t>(Below(10)),
                      .completions = static_cast<uint32_t>(1 + Below(3))});
      }
      stack.Step();
      running = false;
      for (Conversation& c : all) {
        if (c.client == nullptr) continue;
        running = true;
        if (!c.client->end.has_value()) continue;
        CheckTurn(stack, c);
        if (HasFatalFailure()) return;
        c.client = nullptr;
        if (c.turns_left > 0) StartTurn(stack, c);
      }
    }
    while (stack.Step()) continue;
  }
};

TEST_P(TurnsTest, EverySplitOfAConversationGivesTheBitsOfOnePrompt) {
  const auto stack = NewStack(1);
  for (int i = 0; i < 4; ++i) RunConversations(*stack, {NewConversation(*stack, 6)});
}

TEST_P(TurnsTest, SoDoManyConversationsAtOnce) {
  for (const size_t threads : {1, 3}) {
    const auto stack = NewStack(threads);
    std::vector<Conversation> all;
    for (int i = 0; i < 6; ++i) all.push_back(NewConversation(*stack, 8));
    RunConversations(*stack, std::move(all));
    ExpectDrafts(*stack);
  }
}

TEST_P(TurnsTest, WhereTheCutFallsDoesNotMatter) {
  const std::vector<uint32_t> tokens = RandomTokens(50);
  Ask whole;
  whole.prompt = tokens;
  whole.max_tokens = 4;
  whole.logprobs = 5;
  const Client& expected = alone_->Run(whole);
  const auto stack = NewStack(2);
  for (size_t cut = 1; cut < tokens.size(); ++cut) {
    const std::string id = stack->sessions().Create("", "")->id;
    Ask first;
    first.prompt.assign(tokens.begin(), tokens.begin() + cut);
    stack->Run(first, *stack->sessions().LeaseForTurn(id));
    Ask second = whole;
    second.prompt.assign(tokens.begin() + cut, tokens.end());
    const Client& got = stack->Run(second, *stack->sessions().LeaseForTurn(id));
    SCOPED_TRACE(cut);
    ExpectSame(got.received[0], expected.received[0]);
    ASSERT_EQ(got.received[0].usage.cached_tokens, cut - 1);
    ASSERT_TRUE(stack->sessions().Delete(id).ok());
  }
}

// The random numbers are those of absolute positions: turns without a prompt go on as one turn
// would.
TEST_P(TurnsTest, TurnsWithoutPromptAreOneTurn) {
  Ask whole;
  whole.prompt = RandomTokens(20);
  whole.max_tokens = 40;
  whole.sampling.seed = random_();
  whole.sampling.repetition_penalty = 1.2f;
  whole.stop.ignore_eos = true;
  const std::vector<uint32_t> expected = alone_->Run(whole).tokens();
  const auto stack = NewStack(2);
  const std::string id = stack->sessions().Create("", "")->id;
  std::vector<uint32_t> got;
  Ask turn = whole;
  while (got.size() < expected.size()) {
    turn.max_tokens =
        static_cast<uint32_t>(std::min<size_t>(Below(8), expected.size() - got.size()));
    const auto more = stack->Run(turn, *stack->sessions().LeaseForTurn(id)).tokens();
    got.insert(got.end(), more.begin(), more.end());
    turn.prompt.clear();
  }
  EXPECT_EQ(got, expected);
}

// Wherever a stop ends a turn, also where a fold follows and the next step was planned already, the
// session is what the tokens so far make of it.
TEST_P(TurnsTest, ATurnThatStopsAroundABorderCanBeContinued) {
  const auto stack = NewStack(2);
  int stops = 0;
  for (size_t border = 32; border <= 112; border += 16) {
    Ask whole;
    whole.prompt = RandomTokens(border - 5);
    whole.max_tokens = 12;
    whole.sampling.seed = random_();
    whole.stop.ignore_eos = true;
    whole.logprobs = 2;
    const Received expected = alone_->Run(whole).received[0];
    for (auto last = expected.tokens.begin(); last != expected.tokens.end() - 4; ++last) {
      if (std::find(expected.tokens.begin(), last, *last) != last) continue;
      const size_t said = 1 + (last - expected.tokens.begin());
      SCOPED_TRACE(testing::Message() << border << ": " << said);
      const std::string id = stack->sessions().Create("", "")->id;
      Ask first = whole;
      first.stop.token_ids = {*last};
      ASSERT_EQ(stack->Run(first, *stack->sessions().LeaseForTurn(id)).tokens().size(), said);
      Ask second = whole;
      second.prompt.clear();
      second.max_tokens = 4;
      const Received got = stack->Run(second, *stack->sessions().LeaseForTurn(id)).received[0];
      ASSERT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), last + 1));
      const auto logprobs = expected.logprobs.begin() + static_cast<ptrdiff_t>(said);
      ASSERT_TRUE(Same(got.logprobs, {logprobs, logprobs + 4}));
      ASSERT_TRUE(stack->sessions().Delete(id).ok());
      ++stops;
    }
  }
  EXPECT_GT(stops, 20);
}

// What a turn sampled one token at a time has the log-probabilities that reading it has.
TEST_P(TurnsTest, DecodedTurnsHaveTheScoresOfTheirTranscript) {
  const auto stack = NewStack(2);
  const std::string id = stack->sessions().Create("", "")->id;
  std::map<size_t, float> sampled;  // by place in the transcript
  size_t place = 0;
  for (int turn = 0; turn < 4; ++turn) {
    Ask ask;
    ask.prompt = RandomTokens(1 + Below(30));
    ask.max_tokens = static_cast<uint32_t>(1 + Below(30));
    ask.logprobs = 1;
    ask.stop.ignore_eos = true;
    const Client& client = stack->Run(ask, *stack->sessions().LeaseForTurn(id));
    place += ask.prompt.size();
    for (const Logprobs& one : client.received[0].logprobs) sampled[place++] = one.chosen.logprob;
  }
  Ask transcript;
  transcript.prompt = stack->TokensOf(id);
  transcript.score_prompt = true;
  ASSERT_EQ(transcript.prompt.size(), place);
  const Client& scores = alone_->Run(transcript);
  for (const auto& [at, logprob] : sampled) {
    ASSERT_EQ(scores.received[0].prompt_logprobs[at - 1].chosen.logprob, logprob) << at;
  }
}

// ---- Stops.

class StopsTest : public SchedulerBitsTest {
 protected:
  // Everything that may be asked, at random; strings that do occur in what is said without them.
  Ask RandomAsk() {
    Ask ask;
    ask.prompt = RandomTokens(1 + Below(60));
    ask.max_tokens = static_cast<uint32_t>(1 + Below(40));
    if (Below(4) == 0) ask.completions = static_cast<uint32_t>(2 + Below(3));
    SamplingParams& sampling = ask.sampling;
    sampling.seed = random_();
    sampling.temperature = Below(4) == 0 ? 0.0f : 0.9f;
    if (Below(3) == 0) sampling.top_k = static_cast<uint32_t>(1 + Below(40));
    if (Below(3) == 0) sampling.top_p = 0.8f;
    if (Below(3) == 0) sampling.min_p = 0.05f;
    if (Below(3) == 0) sampling.repetition_penalty = 1.4f;
    if (Below(3) == 0) sampling.frequency_penalty = 0.7f;
    if (Below(3) == 0) sampling.presence_penalty = -0.6f;
    if (Below(3) == 0) sampling.logit_bias = {{static_cast<uint32_t>(Below(kVocab)), 4.0f}};
    // Letters and the bytes of é more often, so that strings go over the borders of tokens.
    for (uint32_t id = 0; id <= FakeTokenizer::kSecondByte; id += 3) {
      if (sampling.logit_bias.empty() || sampling.logit_bias[0].token != id) {
        sampling.logit_bias.push_back({id, 2.0f});
      }
    }
    ask.logprobs = static_cast<uint32_t>(Below(4));
    ask.score_prompt = Below(3) == 0;
    ask.score_top = static_cast<uint32_t>(Below(3));
    ask.stop.ignore_eos = Below(2) == 0;
    ask.stop.include_stop = Below(3) == 0;
    AddStops(ask);
    return ask;
  }

  void AddStops(Ask& ask) {
    Ask endless = ask;
    endless.stop.ignore_eos = true;
    const Received& said = alone_->Run(endless).received[0];
    if (Below(3) != 0) {
      for (uint64_t i = 1 + Below(3); i > 0; --i) AddStopString(ask, said.text);
    }
    if (Below(4) == 0) ask.stop.token_ids = {said.tokens[Below(said.tokens.size())]};
    // Which ids are forbidden before min_tokens changes what is said: with strings alone it does
    // not.
    const bool ids = !ask.stop.token_ids.empty() || !ask.stop.ignore_eos;
    if (!ids && Below(2) == 0) ask.stop.min_tokens = static_cast<uint32_t>(Below(30));
  }

  // From anywhere in the text, but between characters.
  void AddStopString(Ask& ask, const std::string& text) {
    if (text.empty()) return;
    const size_t at = Below(text.size());
    const std::string stop = text.substr(at, 1 + Below(9));
    if (StopMatcher::Validate({stop}).ok()) ask.stop.strings.push_back(stop);
  }

  static bool EndsWith(std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
  }

  // The definition: `said` without any stop, and the rules of the API on it, byte by byte.
  Received ByTheRules(const Ask& ask, const Received& said) {
    Received expected;
    Detokenizer detokenizer(alone_->tokenizer(), /*starts_text=*/false);
    for (const uint32_t token : said.tokens) {
      expected.tokens.push_back(token);
      const size_t generated = expected.tokens.size();
      const auto& ids = ask.stop.token_ids;
      const bool stop_id = std::find(ids.begin(), ids.end(), token) != ids.end();
      const bool eos = token == FakeTokenizer::kEos && !ask.stop.ignore_eos;
      const bool ends = (stop_id || eos) && generated > ask.stop.min_tokens;
      const uint32_t one[] = {token};
      if (!ends || ask.stop.include_stop) {
        for (const char byte : detokenizer.Append(one)) {
          expected.text += byte;
          if (generated >= ask.stop.min_tokens && MatchHere(ask, expected)) return expected;
        }
      }
      if (ends) {
        expected.reason = stop_id ? FinishReason::kStop : FinishReason::kEos;
        expected.text += detokenizer.Finish();
        return expected;
      }
    }
    expected.reason = FinishReason::kLength;
    expected.text += detokenizer.Finish();
    return expected;
  }

  // min_tokens forbids EOS and stop ids before it.
  static void CheckMinimum(const Ask& ask, const Received& received) {
    std::vector<uint32_t> ends = ask.stop.token_ids;
    if (!ask.stop.ignore_eos) ends.push_back(FakeTokenizer::kEos);
    for (size_t i = 0; i < std::min<size_t>(ask.stop.min_tokens, received.tokens.size()); ++i) {
      for (const uint32_t end : ends) ASSERT_NE(received.tokens[i], end);
    }
    ASSERT_GE(received.tokens.size(), std::min(ask.stop.min_tokens, ask.max_tokens));
  }

  static bool MatchHere(const Ask& ask, Received& expected) {
    for (const std::string& stop : ask.stop.strings) {
      if (EndsWith(expected.text, stop) && stop.size() > expected.matched_stop.size()) {
        expected.matched_stop = stop;
      }
    }
    if (expected.matched_stop.empty()) return false;
    expected.reason = FinishReason::kStop;
    if (!ask.stop.include_stop) {
      expected.text.resize(expected.text.size() - expected.matched_stop.size());
    }
    return true;
  }
};

TEST_P(StopsTest, AnswersAreWhatTheRulesMakeOfTheSameTokensWithoutThem) {
  int by_string = 0, by_id = 0;
  for (int round = 0; round < 150; ++round) {
    const Ask ask = RandomAsk();
    Ask endless = ask;
    endless.stop = StopRules();
    endless.stop.ignore_eos = true;
    const Client& said = alone_->Run(endless);
    const Client& got = alone_->Run(ask);
    for (uint32_t i = 0; i < ask.completions; ++i) {
      SCOPED_TRACE(testing::Message() << "round " << round << " completion " << i);
      const Received expected = ByTheRules(ask, said.received[i]);
      ASSERT_EQ(got.received[i].tokens, expected.tokens);
      ASSERT_EQ(got.received[i].text, expected.text);
      ASSERT_EQ(got.received[i].reason, expected.reason);
      ASSERT_EQ(got.received[i].matched_stop, expected.matched_stop);
      ASSERT_EQ(got.received[i].usage.completion_tokens, expected.tokens.size());
      by_string += !expected.matched_stop.empty();
      by_id += expected.reason == FinishReason::kStop && expected.matched_stop.empty();
    }
  }
  EXPECT_GT(by_string, 20);
  EXPECT_GT(by_id, 3);
}

TEST_P(StopsTest, NeighboursDoNotChangeAnAnswer) {
  for (int round = 0; round < 6; ++round) {
    std::vector<Ask> asks;
    std::vector<Client*> alone, together;
    for (int i = 0; i < 8; ++i) {
      asks.push_back(RandomAsk());
      if (Below(3) == 0) {
        asks.back().stop.min_tokens = static_cast<uint32_t>(Below(asks.back().max_tokens));
      }
      alone.push_back(&alone_->Run(asks.back()));
    }
    const auto stack = NewStack(1 + Below(3));
    for (const Ask& ask : asks) {
      together.push_back(&stack->Submit(ask));
      for (uint64_t steps = Below(4); steps > 0; --steps) stack->Step();
    }
    while (stack->Step()) continue;
    for (size_t i = 0; i < asks.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "round " << round << " request " << i);
      for (uint32_t n = 0; n < asks[i].completions; ++n) {
        ExpectSame(together[i]->received[n], alone[i]->received[n]);
      }
      ASSERT_TRUE(
          Same(together[i]->received[0].prompt_logprobs, alone[i]->received[0].prompt_logprobs));
      CheckMinimum(asks[i], together[i]->received[0]);
    }
  }
}

TEST_P(StopsTest, IndexZeroOfSeveralCompletionsIsTheOneAlone) {
  for (int round = 0; round < 10; ++round) {
    Ask ask = RandomAsk();
    ask.completions = 1;
    const Client& one = alone_->Run(ask);
    ask.completions = 3;
    const Client& three = alone_->Run(ask);
    ExpectSame(three.received[0], one.received[0]);
    ASSERT_TRUE(Same(three.received[0].prompt_logprobs, one.received[0].prompt_logprobs));
  }
}

// However turn 1 ended, the session holds all tokens that were sampled, and turn 2 is what the
// whole context as one prompt gives, by its own rules.
TEST_P(StopsTest, AStopInOneTurnLeavesNothingBehindForTheNext) {
  const auto stack = NewStack(2);
  int stopped = 0;
  for (int round = 0; round < 20; ++round) {
    const std::string id = stack->sessions().Create("", "")->id;
    Ask first = RandomAsk(), second = RandomAsk();
    first.completions = second.completions = 1;
    second.score_prompt = false;
    const Client& a = stack->Run(first, *stack->sessions().LeaseForTurn(id));
    stopped += a.received[0].reason == FinishReason::kStop;
    const std::vector<uint32_t> sampled = a.tokens();
    std::vector<uint32_t> context = first.prompt;
    context.insert(context.end(), sampled.begin(), sampled.end());
    ASSERT_EQ(stack->TokensOf(id), context);
    const Client& b = stack->Run(second, *stack->sessions().LeaseForTurn(id));
    Ask whole = second;
    whole.prompt = context;
    whole.prompt.insert(whole.prompt.end(), second.prompt.begin(), second.prompt.end());
    SCOPED_TRACE(round);
    ExpectSame(b.received[0], alone_->Run(whole).received[0]);
    ASSERT_TRUE(stack->sessions().Delete(id).ok());
  }
  EXPECT_GT(stopped, 3);
}

// Every model with an engine of depth 1 and one that runs ahead, without drafts and with them.
std::vector<BitsParam> AllParams() {
  std::vector<BitsParam> params;
  for (const size_t depth : {1, 2}) {
    for (const TestModel& model : AllTestModels()) {
      for (const bool drafts : {false, true}) params.push_back({model, depth, drafts});
    }
  }
  return params;
}

constexpr auto kParamName = [](const auto& info) {
  return info.param.model.name + (info.param.depth == 2 ? "Ahead" : "") +
         (info.param.drafts ? "Drafts" : "");
};
INSTANTIATE_TEST_SUITE_P(Models, TurnsTest, testing::ValuesIn(AllParams()), kParamName);
INSTANTIATE_TEST_SUITE_P(Models, StopsTest, testing::ValuesIn(AllParams()), kParamName);

}  // namespace
}  // namespace rivulet
