// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Structured output on a device: the tokens, log-probabilities and ends that the host gives from
// the same logits, beside other streams, with drafts and with steps that run ahead. On a fake
// device, and on the GPU where there is one.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"
#include "nlohmann/json.hpp"
#include "server/drafts/lookup_drafter.h"
#include "server/engine/device_engine.h"
#include "server/engine/random_model.h"
#include "server/engine/test_models.h"
#include "server/grammar/grammar_store.h"
#include "server/scheduler/stack_fixture.h"

namespace rivulet {
namespace {

// More edits of logits than the description of a step has room for: a row that has them is sampled
// on the host. These change nothing.
constexpr size_t kTooManyEdits = (size_t{1} << 19) + 1;

// The vocabulary of the models is 101, one more than the tokenizer's.
constexpr uint32_t kModelVocab = FakeEngine::kVocab + 1;

absl::StatusOr<std::unique_ptr<Engine>> EngineOn(Device* device, const std::string& model,
                                                 size_t depth) {
  const std::vector<TestModel> models = AllTestModels();
  const auto found = std::find_if(models.begin(), models.end(),
                                  [&](const TestModel& one) { return one.name == model; });
  LoadOptions options;
  options.mixer.device = device;
  options.mixer.drafts = true;
  auto loaded = MakeRandomModel(nlohmann::json::parse(found->config), 1, options);
  if (!loaded.ok()) return loaded.status();
  return MakeDeviceEngine(*std::move(loaded), device,
                          {.threads = 3, .state_memory = uint64_t{128} << 20}, depth);
}

// What may be asked, at random.
class Asks {
 public:
  explicit Asks(uint64_t seed) : random_(seed) {}

  Ask Next(uint32_t most_tokens) {
    Ask ask;
    for (uint64_t i = 1 + Below(40); i > 0; --i) ask.prompt.push_back(Token());
    ask.max_tokens = static_cast<uint32_t>(1 + Below(most_tokens));
    ask.completions = Below(6) == 0 ? 3 : 1;
    ask.sampling = Sampling();
    ask.stop.ignore_eos = Below(4) == 0;
    if (Below(4) == 0) ask.stop.strings = {"ab", "z"};
    if (Below(4) == 0) ask.stop.token_ids = {3, 14, FakeTokenizer::kSpace, kModelVocab + 7};
    if (Below(3) == 0) ask.stop.min_tokens = static_cast<uint32_t>(1 + Below(10));
    if (Below(2) == 0) ask.logprobs = static_cast<uint32_t>(1 + Below(kMaxTopLogprobs));
    ask.score_prompt = Below(6) == 0;
    ask.score_top = 2;
    if (Below(3) != 0) ask.grammar = Grammar();
    return ask;
  }

 private:
  uint64_t Below(uint64_t limit) { return random_() % limit; }
  uint32_t Token() { return static_cast<uint32_t>(Below(kModelVocab)); }

  SamplingParams Sampling() {
    SamplingParams params;
    params.seed = random_();
    params.temperature = Below(3) == 0 ? 0.0f : 1.0f;
    if (Below(4) == 0) params.top_k = static_cast<uint32_t>(1 + Below(30));
    if (Below(4) == 0) params.top_p = 0.8f;
    if (Below(4) == 0) params.min_p = 0.01f;
    if (Below(4) == 0) params.repetition_penalty = 1.3f;
    // So far from 1 that it brings back what a grammar excludes.
    if (Below(12) == 0) params.repetition_penalty = 1e-35f;
    if (Below(4) == 0) params.frequency_penalty = 0.5f;
    if (Below(4) == 0) params.presence_penalty = -0.5f;
    if (Below(4) == 0) params.logit_bias = {{Token(), 3.0f}};
    return params;
  }

  std::shared_ptr<TokenGrammar> Grammar() {
    const char* const regexes[] = {"([a-m]+ )*[n-z]{2,5}", "(\\[[0-9]+\\])*a?", "[a-zé ]{3,20}",
                                   "(abc|de(f|g)*)+", "( ?[a-z]+)*"};
    auto made = Below(6) == 0 ? grammars_.Get(GrammarKind::kChoices, R"(["a king", "é", "[29]b"])")
                              : grammars_.Get(GrammarKind::kRegex, regexes[Below(5)]);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }

  std::mt19937_64 random_;
  FakeTokenizer tokenizer_;
  GrammarStore grammars_{tokenizer_};
};

// What the host gives: of a request alone, one step after the other, all sampled on the host.
Client& OnHost(Stack& stack, Ask ask) {
  ask.sampling.logit_bias.resize(kTooManyEdits, LogitBias{0, 0.0f});
  Client& client = stack.Submit(ask);
  while (stack.Step()) continue;
  client.Read();
  return client;
}

class DeviceGrammarTest : public testing::TestWithParam<const char*> {
 protected:
  using Open = std::function<absl::StatusOr<std::unique_ptr<Device>>()>;

  struct Sent {
    Ask ask;
    Client* client;
    bool cancelled = false;
  };

  void Expect(const Client& expected, const Sent& sent) {
    ASSERT_TRUE(sent.client->end.has_value());
    if (!sent.cancelled) {
      ASSERT_EQ(sent.client->end->code(), expected.end->code()) << *sent.client->end;
    }
    for (uint32_t i = 0; i < sent.ask.completions; ++i) {
      const Received& got = sent.client->received[i];
      if (!sent.cancelled) {
        ExpectSame(got, expected.received[i]);
        ASSERT_TRUE(Same(got.prompt_logprobs, expected.received[i].prompt_logprobs));
        continue;
      }
      const std::vector<uint32_t>& whole = expected.received[i].tokens;
      ASSERT_LE(got.tokens.size(), whole.size());
      ASSERT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), whole.begin()));
    }
  }

  // Sends twelve requests, some at a time, and compares all of them.
  void CheckRound(Stack& host, Stack& stack, size_t at_once, uint32_t most_tokens) {
    std::vector<Sent> sent;
    while (sent.size() < 12) {
      for (size_t i = 0; i < at_once; ++i) {
        const Ask ask = asks_.Next(most_tokens);
        sent.push_back({ask, &stack.Submit(ask)});
      }
      for (uint64_t steps = random_() % 20; steps > 0; --steps) stack.Step();
      Sent& one = sent[random_() % sent.size()];
      if (random_() % 3 != 0 || one.client->end.has_value()) continue;
      stack.Cancel(*one.client);
      one.cancelled = true;
    }
    Finish(host, stack, sent);
  }

  // More rows at a time than there are rows of logits.
  void CheckManyRows(Stack& host, Stack& stack) {
    std::vector<Sent> sent;
    for (size_t i = 0; i < 5; ++i) {
      Ask ask = asks_.Next(3);
      ask.completions = 64;
      sent.push_back({ask, &stack.Submit(ask)});
    }
    Finish(host, stack, sent);
  }

  void Finish(Stack& host, Stack& stack, const std::vector<Sent>& sent) {
    while (stack.Step()) continue;
    for (const Sent& one : sent) {
      one.client->Read();
      Expect(OnHost(host, one.ask), one);
      if (HasFatalFailure()) return;
      Count(one);
    }
    stack.ForgetClients();
    host.ForgetClients();
  }

  void Count(const Sent& sent) {
    if (sent.cancelled) return void(++cancelled_);
    failed_ += sent.client->end->ok() ? 0 : 1;
    if (sent.ask.grammar == nullptr) return;
    for (const Received& got : sent.client->received) {
      confined_ += got.tokens.size();
      complete_ += got.reason == FinishReason::kStop || got.reason == FinishReason::kEos;
    }
  }

  void Check(const Open& open, size_t rounds) {
    for (const size_t depth : {1, 2}) {
      SCOPED_TRACE(testing::Message() << "steps in flight: " << depth);
      auto device = open();
      ASSERT_TRUE(device.ok()) << device.status();
      const auto made = EngineOn(device->get(), GetParam(), depth);
      ASSERT_TRUE(made.ok()) << made.status();
      Engine& engine = **made;
      auto* const fake = dynamic_cast<FakeDevice*>(device->get());
      const size_t allocations = fake == nullptr ? 0 : fake->allocations();
      Metrics metrics;
      LookupSource lookup({}, metrics);
      DraftOptions drafts;
      drafts.source = &lookup;
      drafts.always = true;
      Stack host(engine, random_()), plain(engine, random_());
      Stack drafted(engine, random_(), 0, drafts);
      for (size_t round = 0; round < rounds; ++round) {
        CheckRound(host, plain, 4, 30);
        if (HasFatalFailure()) return;
        CheckRound(host, drafted, 3, 60);
        if (HasFatalFailure()) return;
      }
      CheckManyRows(host, plain);
      if (HasFatalFailure()) return;
      if (fake != nullptr) {
        EXPECT_EQ(fake->allocations(), allocations);
      }
      const auto source = static_cast<size_t>(DraftSource::kLookup);
      accepted_ += drafted.metrics().accepted_draft_tokens[source].value();
    }
    std::printf(
        "%s: %zu confined tokens, %zu texts to their end, %zu failed, %zu cancelled, "
        "%zu drafts right\n",
        GetParam(), confined_, complete_, failed_, cancelled_, accepted_);
    EXPECT_GT(confined_, 0u);
    EXPECT_GT(complete_, 0u);
  }

  std::mt19937_64 random_{TestSeed()};
  Asks asks_{random_()};
  size_t confined_ = 0, complete_ = 0, failed_ = 0, cancelled_ = 0, accepted_ = 0;
};

TEST_P(DeviceGrammarTest, TheFakeDeviceDrawsWhatTheHostDraws) {
  Check([]() -> absl::StatusOr<std::unique_ptr<Device>> { return LateFakeDevice(); }, 2);
}

TEST_P(DeviceGrammarTest, TheGpuDrawsWhatTheHostDraws) {
  RIVULET_NEED_GPU();
  Check([] { return OpenCudaDevice(ProductPrecision::kBFloat16); }, 3);
}

// The one token that the grammar takes is a stop id, and the text may not end.
TEST_P(DeviceGrammarTest, ARowThatNoTokenMayContinueFailsAlone) {
  FakeDevice device;
  const auto engine = EngineOn(&device, GetParam(), 2);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const FakeTokenizer tokenizer;
  GrammarStore grammars(tokenizer);
  Ask stuck;
  stuck.prompt = {1, 2, 3};
  stuck.max_tokens = 10;
  stuck.stop.token_ids = {29};
  stuck.grammar = *grammars.Get(GrammarKind::kChoices, R"(["ab[29]c"])");
  Ask free = stuck;
  free.stop.token_ids.clear();
  Stack stack(**engine, random_()), host(**engine, random_());
  Client& first = stack.Submit(stuck);
  Client& second = stack.Submit(free);
  while (stack.Step()) continue;
  ASSERT_TRUE(first.end.has_value() && second.end.has_value());
  EXPECT_EQ(first.end->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(first.end->message().find("leaves no token"), std::string::npos) << *first.end;
  EXPECT_EQ(first.received[0].tokens, std::vector<uint32_t>({0, 1}));
  EXPECT_EQ(second.received[0].text, "ab[29]c");
  EXPECT_EQ(OnHost(host, stuck).end->code(), absl::StatusCode::kFailedPrecondition);
}

// Both texts are at the same place of one grammar, but one of them must not end yet.
TEST_P(DeviceGrammarTest, EachOfTheRowsAtOnePlaceEndsWhereItMay) {
  FakeDevice device;
  const auto engine = EngineOn(&device, GetParam(), 2);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const FakeTokenizer tokenizer;
  GrammarStore grammars(tokenizer);
  Ask longer;
  longer.prompt = {1, 2, 3};
  longer.max_tokens = 10;
  longer.stop.token_ids = {29};
  longer.stop.min_tokens = 10;
  longer.sampling.logit_bias = {{29, 60.0f}};
  longer.grammar = *grammars.Get(GrammarKind::kRegex, "( ?[a-z]+)*");
  Ask ends = longer, cannot = longer;
  ends.stop.min_tokens = 0;
  cannot.stop.min_tokens = 0;
  cannot.stop.token_ids.clear();
  Stack stack(**engine, random_());
  for (const std::vector<Ask>& order :
       {std::vector{longer, ends, cannot}, {cannot, ends, longer}}) {
    std::vector<Client*> clients;
    for (const Ask& ask : order) clients.push_back(&stack.Submit(ask));
    while (stack.Step()) continue;
    for (Client* const client : clients) client->Read();
    EXPECT_NE(clients[0]->received[0].text, "");
    EXPECT_EQ(clients[1]->received[0].text, "");
    EXPECT_EQ(clients[1]->received[0].reason, FinishReason::kStop);
    EXPECT_NE(clients[2]->received[0].text, "");
    stack.ForgetClients();
  }
}

// A sum whose rows run ahead, one that rewrites pages, states in the tail, attention.
INSTANTIATE_TEST_SUITE_P(Models, DeviceGrammarTest,
                         testing::Values("Mamba2", "LogLinearDelta", "Scans", "Attention"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace rivulet
