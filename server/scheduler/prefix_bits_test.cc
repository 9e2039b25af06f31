// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The prefix cache over real mixers: prompts of a random tree, alone and on sessions, at once and
// one after the other, some of them cancelled, with much and little memory for states. Every answer
// has the bits of its prompt in an engine of its own, where nothing is reused.
//
// RIVULET_PREFIX_SOAK=100000 makes the soak that long; without it, it is short.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
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
#include "server/scheduler/oracle_drafter.h"
#include "server/scheduler/stack_fixture.h"

namespace rivulet {
namespace {

constexpr uint32_t kVocab = 101;  // of the test models
constexpr uint64_t kMuch = uint64_t{1} << 30;

// A request that was sent, and what was asked.
struct Sent {
  Client* client;
  Ask ask;
  bool cancelled = false;
};

class PrefixBits {
 public:
  PrefixBits(const TestModel& model, size_t threads, size_t depth, uint64_t sessions_memory,
             bool drafts)
      : model_(*MakeRandomModel(nlohmann::json::parse(model.config), 1, WithHead())),
        oracle_(model_, kVocab, random_()),
        alone_(model_, 1, 1, random_()) {
    const uint64_t session = kMuch / alone_.states().capacity().tail_slots;
    const uint64_t memory = sessions_memory == 0 ? kMuch : sessions_memory * session + session / 2;
    stack_ = std::make_unique<Stack>(model_, threads, depth, random_(), 0, memory,
                                     drafts ? oracle_.Options() : DraftOptions(), memory);
    oracle_.Bind(stack_->engine());
  }

  uint64_t Below(uint64_t limit) { return random_() % limit; }

  void Append(std::vector<uint32_t>& tokens, size_t count) {
    for (; count > 0; --count) tokens.push_back(static_cast<uint32_t>(Below(kVocab)));
  }

  // A beginning of an earlier context, often one at a border or next to it, and something new.
  std::vector<uint32_t> Prompt(size_t most_new) {
    std::vector<uint32_t> tokens;
    if (!contexts_.empty() && Below(8) != 0) {
      tokens = contexts_[Below(contexts_.size())];
      size_t shared = Below(tokens.size() + 1);
      if (Below(2) == 0) shared = std::min(tokens.size(), (shared + 8) / 16 * 16 + Below(3));
      if (Below(4) == 0) shared = tokens.size();
      tokens.resize(shared);
    }
    Append(tokens, Below(most_new));
    if (tokens.empty()) Append(tokens, 1);
    return tokens;
  }

  Ask AnyAsk(std::vector<uint32_t> prompt) {
    Ask ask;
    ask.prompt = std::move(prompt);
    ask.max_tokens = static_cast<uint32_t>(Below(16));
    ask.sampling.seed = random_();
    ask.sampling.repetition_penalty = 1.1f;
    ask.logprobs = 2;
    ask.stop.ignore_eos = true;
    if (Below(6) == 0) ask.completions = static_cast<uint32_t>(2 + Below(2));
    if (Below(6) == 0) ask.cache_salt = "another tenant";
    if (Below(8) == 0) ask.score_prompt = true;
    return ask;
  }

  void Send(const Ask& ask, SessionLease lease = {}) {
    sent_.push_back({&stack_->Submit(ask, std::move(lease)), ask});
  }

  // The same beginning may come several times at once.
  void SendSome() {
    const std::vector<uint32_t> prompt = Prompt(long_prompt_ ? 1500 : 60);
    long_prompt_ = false;
    for (uint64_t i = 1 + Below(4); i > 0; --i) {
      Ask ask = AnyAsk(Below(2) == 0 ? prompt : Prompt(60));
      if (Below(5) != 0) {
        Send(ask);
        continue;
      }
      ask.completions = 1;
      const std::string id = stack_->sessions().Create("", "")->id;
      Send(ask, *stack_->sessions().LeaseForTurn(id));
    }
  }

  void RunAll() {
    while (stack_->Step()) {
      if (Below(40) != 0 || sent_.empty()) continue;
      Sent& one = sent_[Below(sent_.size())];
      if (one.client->end.has_value()) continue;
      stack_->Cancel(*one.client);
      one.cancelled = true;
    }
  }

  static bool IsCancelled(const Received& got) { return got.reason == FinishReason::kCancelled; }

  void CheckAnswer(const Sent& sent, const Received& got, const Received& expected) {
    ASSERT_EQ(got.usage.cached_tokens % 16, 0u);
    ASSERT_LT(got.usage.cached_tokens, sent.ask.prompt.size());
    ASSERT_EQ(got.usage.cached_tokens > 0, got.usage.prefix_miss == PrefixMiss::kNone);
    ASSERT_GE(got.usage.known_tokens, got.usage.cached_tokens);
    if (sent.ask.score_prompt) {
      ASSERT_EQ(got.usage.cached_tokens, 0u);
      ASSERT_EQ(got.usage.prefix_miss, PrefixMiss::kPromptLogprobs);
    }
    ExpectSame(got, expected);
    ASSERT_TRUE(Same(got.prompt_logprobs, expected.prompt_logprobs));
  }

  void Check(const Sent& sent) {
    sent.client->Read();
    ASSERT_TRUE(sent.client->end.has_value()) << "it waits for ever";
    if (sent.cancelled) return;  // it may have ended before
    ASSERT_EQ(*sent.client->end, absl::OkStatus());
    const Client& expected = alone_.Run(sent.ask);
    for (uint32_t i = 0; i < sent.ask.completions; ++i) {
      CheckAnswer(sent, sent.client->received[i], expected.received[i]);
      if (testing::Test::HasFatalFailure()) return;
      cached_ += sent.client->received[i].usage.cached_tokens;
    }
    Learn(sent);
  }

  void Learn(const Sent& sent) {
    std::vector<uint32_t> context = sent.ask.prompt;
    const std::vector<uint32_t>& tokens = sent.client->received[0].tokens;
    context.insert(context.end(), tokens.begin(), tokens.end());
    if (contexts_.size() < 30) {
      contexts_.push_back(std::move(context));
    } else {
      contexts_[Below(contexts_.size())] = std::move(context);
    }
  }

  void Round() {
    SendSome();
    RunAll();
    for (const Sent& sent : sent_) {
      Check(sent);
      if (testing::Test::HasFatalFailure()) return;
    }
    requests_ += sent_.size();
    sent_.clear();
    stack_->ForgetClients();
    alone_.ForgetClients();
    // Sessions are there for their first turns.
    for (const SessionInfo& session : stack_->sessions().List("", 1000)) {
      if (Below(2) == 0) (void)stack_->sessions().Delete(session.id);
    }
  }

  void CheckNothingIsLeft() {
    for (const SessionInfo& session : stack_->sessions().List("", 1000)) {
      EXPECT_TRUE(stack_->sessions().Delete(session.id).ok());
    }
    stack_->Reap();
    const Metrics& metrics = stack_->metrics();
    EXPECT_EQ(metrics.requests_running.value() + metrics.requests_waiting.value(), 0);
    EXPECT_EQ(stack_->states().tails().used(), 0u);
    EXPECT_LE(stack_->states().bases().used(), stack_->prefix_cache().states());
    stack_->ForgetPrefixes();
    stack_->Reap();
    EXPECT_EQ(stack_->states().bases().used(), 0u);
    for (size_t kind = 0; kind < stack_->states().capacity().pages.size(); ++kind) {
      EXPECT_EQ(stack_->states().pages(kind).used(), 0u);
    }
    EXPECT_EQ(metrics.prefix_states.value() + metrics.prefix_bytes.value(), 0);
    EXPECT_EQ(metrics.prefix_tokens.value(), 0);
    EXPECT_EQ(stack_->sessions().tokens(), 0u);
  }

  Stack& stack() { return *stack_; }
  uint64_t cached() const { return cached_; }
  uint64_t requests() const { return requests_; }
  void MakeNextLong() { long_prompt_ = true; }

 private:
  std::mt19937_64 random_{TestSeed()};
  std::shared_ptr<const LoadedModel> model_;
  OracleSource oracle_;
  Stack alone_;
  std::unique_ptr<Stack> stack_;
  std::vector<std::vector<uint32_t>> contexts_;
  std::vector<Sent> sent_;
  bool long_prompt_ = false;
  uint64_t cached_ = 0, requests_ = 0;
};

struct PrefixParam {
  TestModel model;
  size_t depth;
  bool drafts;
};

class PrefixBitsTest : public testing::TestWithParam<PrefixParam> {
 protected:
  void SetUp() override { SetLogLevel("error"); }
  void TearDown() override { SetLogLevel("info"); }
};

TEST_P(PrefixBitsTest, AnswersDoNotDependOnTheCache) {
  PrefixBits bits(GetParam().model, 2, GetParam().depth, 0, GetParam().drafts);
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    if (round == 5) bits.MakeNextLong();
    bits.Round();
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(bits.cached(), 500u);
  EXPECT_GT(bits.stack().metrics().prefix_hits.value(), 10u);
  bits.CheckNothingIsLeft();
}

TEST_P(PrefixBitsTest, NorWithMemoryForFewStates) {
  PrefixBits bits(GetParam().model, 2, GetParam().depth, 4, GetParam().drafts);
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    bits.Round();
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(bits.cached(), 0u);
  bits.CheckNothingIsLeft();
}

std::vector<PrefixParam> AllParams() {
  std::vector<PrefixParam> params;
  for (const size_t depth : {1, 2}) {
    for (const TestModel& model : AllTestModels()) {
      for (const bool drafts : {false, true}) params.push_back({model, depth, drafts});
    }
  }
  return params;
}

INSTANTIATE_TEST_SUITE_P(Models, PrefixBitsTest, testing::ValuesIn(AllParams()),
                         [](const auto& info) {
                           return info.param.model.name + (info.param.depth == 2 ? "Ahead" : "") +
                                  (info.param.drafts ? "Drafts" : "");
                         });

// A hybrid of one small layer of each kind of state: base, running tail, pages with and without a
// window.
constexpr char kTinyHybrid[] = R"({"model_type": "gla", "vocab_size": 101, "hidden_size": 16,
    "num_hidden_layers": 3, "intermediate_size": 24, "norm_eps": 1e-5, "num_heads": 1,
    "expand_k": 0.5, "expand_v": 1,
    "layer_types": ["softmax_attention", "gla", "softmax_attention"],
    "layer_config": [{"num_heads": 1, "num_kv_heads": 1, "head_dim": 8}, {},
                     {"num_heads": 1, "num_kv_heads": 1, "head_dim": 8, "window_size": 21}]})";

// And one of each kind that is left: ANNA, log-linear sums with and without a delta rule, a scan
// with rows of guesses, a window.
constexpr char kTinyEverything[] = R"({"model_type": "gla", "vocab_size": 101, "hidden_size": 16,
    "num_hidden_layers": 5, "intermediate_size": 24, "norm_eps": 1e-5, "num_heads": 1,
    "layer_types": ["anna", "log_linear_mamba2", "h3", "h_gated_deltanet", "softmax_attention"],
    "layer_config": [{"num_heads": 1, "head_dim": 8, "num_hash_tables": 2, "num_hashes": 2},
                     {"state_size": 8, "expand": 2, "head_dim": 16, "num_heads": 2},
                     {"d_state": 4},
                     {"num_heads": 1, "head_dim": 8, "expand_v": 1, "max_levels": 12},
                     {"num_heads": 1, "num_kv_heads": 1, "head_dim": 8, "window_size": 21}]})";

struct SoakParam {
  TestModel model;
  bool drafts;
};

class PrefixSoakTest : public testing::TestWithParam<SoakParam> {};

TEST_P(PrefixSoakTest, EveryStreamIsThatWithoutACache) {
  SetLogLevel("error");
  const char* const wanted = std::getenv("RIVULET_PREFIX_SOAK");
  const uint64_t requests = wanted == nullptr ? 1500 : std::strtoull(wanted, nullptr, 10);
  PrefixBits bits(GetParam().model, 1, 1, 12, GetParam().drafts);
  while (bits.requests() < requests) {
    bits.Round();
    if (HasFatalFailure()) return;
  }
  const Metrics& metrics = bits.stack().metrics();
  const uint64_t right =
      metrics.accepted_draft_tokens[static_cast<size_t>(DraftSource::kModel)].value();
  std::printf(
      "%s: %llu requests, %llu hits, %llu tokens reused, %llu waits, %llu evictions, "
      "%llu drafts right\n",
      GetParam().model.name.c_str(), static_cast<unsigned long long>(bits.requests()),
      static_cast<unsigned long long>(metrics.prefix_hits.value()),
      static_cast<unsigned long long>(metrics.prefix_tokens_reused.value()),
      static_cast<unsigned long long>(metrics.prefix_waits.value()),
      static_cast<unsigned long long>(metrics.prefix_drops[0].value() +
                                      metrics.prefix_drops[1].value()),
      static_cast<unsigned long long>(right));
  EXPECT_GT(metrics.prefix_hits.value(), requests / 10);
  EXPECT_EQ(right > requests / 10, GetParam().drafts);
  bits.CheckNothingIsLeft();
  SetLogLevel("info");
}

INSTANTIATE_TEST_SUITE_P(Models, PrefixSoakTest,
                         testing::Values(SoakParam{{"TinyHybrid", kTinyHybrid}, false},
                                         SoakParam{{"TinyEverything", kTinyEverything}, true}),
                         [](const auto& info) { return info.param.model.name; });

}  // namespace
}  // namespace rivulet
