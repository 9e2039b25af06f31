// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The device's engine beside the CPU's on real checkpoints, on a fake device, which needs no GPU:
// one checkpoint of each mixer and of each format. Numbers within tolerance, and the same bits for
// every cut of a prompt, neighbours, slots and number of rows.
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/device/fake_device.h"
#include "server/engine/device_engine.h"
#include "server/engine/device_engine_fixture.h"
#include "server/engine/fed_texts.h"
#include "server/engine/same_logprobs.h"

namespace rivulet {
namespace {

constexpr size_t kTokens = 90;

class FakeDeviceTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string model = std::string("tests/parity/fixtures/") + GetParam();
    auto device = EngineOn(std::make_unique<FakeDevice>(), model);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    cpu_ = CpuEngineFor(model);
    ASSERT_NE(cpu_, nullptr);
  }
  Engine& engine() { return *device_.engine; }
  std::vector<uint32_t> RandomText(size_t tokens) {
    std::vector<uint32_t> text(tokens);
    for (uint32_t& token : text) token = random_() % cpu_->vocab_size();
    return text;
  }

  void ExpectNearTheCpuAndTheSameBits();

  std::mt19937 random_{TestSeed()};
  DeviceAndEngine device_;
  std::unique_ptr<Engine> cpu_;
};

void FakeDeviceTest::ExpectNearTheCpuAndTheSameBits() {
  const std::vector<std::vector<uint32_t>> texts = {RandomText(kTokens), RandomText(kTokens),
                                                    RandomText(kTokens)};
  std::vector<Answers> whole;
  for (const std::vector<uint32_t>& text : texts) {
    whole.push_back(Feed(engine(), text, kTokens));
    EXPECT_LE(Distance(Feed(*cpu_, text, kTokens), whole.back()), 5e-4);
  }
  EXPECT_TRUE(Same(Feed(engine(), texts[0], 1), whole[0]));
  EXPECT_GT(static_cast<FakeDevice&>(*device_.device).replays(), 0);
  EXPECT_TRUE(Same(Feed(engine(), texts[1], 7), whole[1]));
  const std::vector<Answers> together = FeedTogether(engine(), texts, 20, random_);
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_TRUE(Same(together[i], whole[i])) << i;
}

TEST_P(FakeDeviceTest, IsNearTheCpuAndHasTheSameBitsFromEverySchedule) {
  ExpectNearTheCpuAndTheSameBits();
}

// As many decode rows as are run separately, and one more.
TEST_P(FakeDeviceTest, DecodeRowsBesideAPromptHaveTheSameBits) {
  constexpr size_t kRows = 97, kFew = 6;
  std::vector<std::vector<uint32_t>> texts;
  for (size_t i = 0; i < kRows; ++i) texts.push_back(RandomText(kFew));
  texts.push_back(RandomText(kTokens));
  const auto before = static_cast<FakeDevice&>(*device_.device).steps_in_parts();
  const std::vector<Answers> beside = FeedBeside(engine(), texts, kTokens / 2, random_);
  EXPECT_GT(static_cast<FakeDevice&>(*device_.device).steps_in_parts(), before);
  for (size_t i = 0; i <= kRows; i += 8) {  // the last one too
    ASSERT_GE(beside[i].size(), i < kRows ? kFew : 1);
    EXPECT_TRUE(BeginsWith(Feed(engine(), texts[i], texts[i].size()), beside[i])) << i;
  }
}

// A step with pieces of texts is replayed as one of decode rows is, if it is small.
TEST_P(FakeDeviceTest, SmallStepsAreReplayed) {
  const std::vector<uint32_t> text = RandomText(kTokens);
  const Answers whole = Feed(engine(), text, kTokens);
  const auto& device = static_cast<FakeDevice&>(*device_.device);
  for (const size_t piece : {2, 7, 16}) {
    const auto before = device.replays();
    EXPECT_TRUE(Same(Feed(engine(), text, piece), whole)) << piece;
    EXPECT_GT(device.replays(), before) << piece;
  }
  const auto before = device.replays();
  Feed(engine(), text, 30);  // nothing is left over
  EXPECT_EQ(device.replays(), before);
}

// What a whole model has beside its mixers.
class FakeFormatTest : public FakeDeviceTest {};

TEST_P(FakeFormatTest, IsNearTheCpuAndHasTheSameBitsFromEverySchedule) {
  ExpectNearTheCpuAndTheSameBits();
}

// The models of them that have a head for further tokens.
class FakeHeadTest : public FakeDeviceTest {};

// Runs its steps on another engine, without the head but for the first ones.
class LeavesHeadOut final : public Engine {
 public:
  LeavesHeadOut(Engine& engine, size_t with_head) : engine_(engine), with_head_(with_head) {}
  StepTicket Launch(const StepPlan& plan) override {
    StepPlan without = plan;
    without.head_follows = steps_++ < with_head_;
    return engine_.Launch(without);
  }
  StepResult Await(StepTicket ticket) override {
    StepResult result = engine_.Await(ticket);
    head_ran += result.head_followed ? 1 : 0;
    return result;
  }
  size_t depth() const override { return engine_.depth(); }
  StatePool& states() const override { return engine_.states(); }
  uint32_t vocab_size() const override { return engine_.vocab_size(); }

  size_t head_ran = 0;  // steps

 private:
  Engine& engine_;
  const size_t with_head_;
  size_t steps_ = 0;
};

// What runs beside the layers, or not, changes no number of theirs.
TEST_P(FakeHeadTest, ChangesNoBit) {
  const std::string model = std::string("tests/parity/fixtures/") + GetParam();
  ASSERT_TRUE(engine().guesses());
  const auto without = EngineOn(std::make_unique<FakeDevice>(), model, {.with_head = false});
  ASSERT_TRUE(without.ok()) << without.status();
  ASSERT_FALSE(without->engine->guesses());
  const std::vector<uint32_t> text = RandomText(kTokens);
  for (const size_t piece : {size_t{1}, kTokens}) {
    EXPECT_TRUE(Same(Feed(engine(), text, piece), Feed(*without->engine, text, piece))) << piece;
  }
  const auto& device = static_cast<FakeDevice&>(*device_.device);
  const size_t allocations = device.allocations();
  for (const size_t piece : {size_t{1}, size_t{7}, kTokens}) {
    LeavesHeadOut all(engine(), 0), some(engine(), 5);
    const auto replays = device.replays();
    const Answers expected = Feed(*without->engine, text, piece);
    EXPECT_TRUE(Same(Feed(all, text, piece), expected)) << piece;
    EXPECT_EQ(all.head_ran, 0u);
    EXPECT_EQ(device.replays() > replays, piece < kTokens) << "steps without it are recorded too";
    EXPECT_TRUE(Same(Feed(some, text, piece), expected)) << piece;
    EXPECT_EQ(some.head_ran, piece < kTokens ? 5u : 1u);
  }
  EXPECT_EQ(device.allocations(), allocations);
}

TEST_P(FakeHeadTest, IsLeftOutOfEveryPassOfAStep) {
  ASSERT_TRUE(engine().guesses());
  for (const bool follows : {false, true}) {
    const std::vector<uint32_t> texts[] = {RandomText(600), RandomText(600)};  // two passes
    Stream a(engine()), b(engine());
    StepPlan plan;
    plan.head_follows = follows;
    a.Add(plan, texts[0], 600, 1);
    b.Add(plan, texts[1], 600, 1);
    EXPECT_EQ(engine().Step(plan).head_followed, follows);
  }
}

// Three segments of 600 tokens do not fit into one pass.
TEST_P(FakeDeviceTest, AStepMayHoldMoreTokensThanAPass) {
  constexpr size_t kLong = 600;
  std::vector<std::vector<uint32_t>> texts;
  std::vector<std::unique_ptr<Stream>> streams;
  StepPlan plan;
  for (size_t i = 0; i < 3; ++i) {
    texts.push_back(RandomText(kLong));
    streams.push_back(std::make_unique<Stream>(engine()));
    streams.back()->Add(plan, texts.back(), kLong, 1);
  }
  plan.tokens[kLong + 5] = cpu_->vocab_size();  // a row that cannot run
  const StepResult result = engine().Step(plan);
  ASSERT_EQ(result.rows.size(), 3);
  EXPECT_EQ(result.rows[1].status.code(), absl::StatusCode::kInvalidArgument);
  for (const size_t i : {0, 2}) {
    Answers in_parts;
    Collect(result.rows[i], in_parts);
    EXPECT_TRUE(Same(in_parts.back(), Feed(engine(), texts[i], 100).back())) << i;
  }
}

constexpr size_t kSessions = 5;
constexpr uint64_t kForbiddenUntil = 20;

// More stop ids than the description of a step has room for.
constexpr size_t kTooManyEdits = (size_t{1} << 19) + 1;

// Sessions that a test continues, one of them with penalties and one with ids that it may not say
// for some time.
class Continuation {
 public:
  // `drawn`: the session that is not greedy.
  Continuation(Engine& engine, size_t drawn) : engine_(engine), drawn_(drawn), counts_(kSessions) {
    greedy_.temperature = 0.0f;
    random_.seed = 7;
    random_.frequency_penalty = 0.5f;
    random_.repetition_penalty = 1.3f;
    random_.top_p = 0.9f;
    for (uint32_t id = 0; even_.size() < kTooManyEdits; id += 2) even_.push_back(id);
    for (uint32_t i = 0; i < kSessions; ++i) {
      texts_.push_back({i, 1, 2});
      pages_.emplace_back(engine.states());
      bases_.push_back(*engine.states().bases().Acquire());
      tails_.push_back(*engine.states().tails().Acquire());
    }
  }
  ~Continuation() {
    for (size_t i = 0; i < kSessions; ++i) {
      engine_.states().bases().Release(bases_[i]);
      engine_.states().tails().Release(tails_[i]);
    }
  }

  // `promised`: the tokens are those that the step before samples.
  StepPlan Plan(uint64_t position, size_t count, bool promised) {
    StepPlan plan;
    for (size_t i = 0; i < kSessions; ++i) {
      StepRow& row = plan.rows.emplace_back();
      row.segment = {plan.tokens.size(),
                     count,
                     position,
                     bases_[i],
                     bases_[i],
                     tails_[i],
                     pages_[i].Plan(position, count)};
      for (size_t k = 0; k < count; ++k) {
        plan.tokens.push_back(promised ? kLastSampled : texts_[i][position + k]);
      }
      row.samples = 1;
      row.spec.params = i == drawn_ ? &random_ : &greedy_;
      if (i == drawn_) row.spec.turn_counts = row.spec.session_counts = &counts_[i];
      row.spec.position = position + count;
      if (i != 1) continue;
      row.spec.stop_ids = &even_;
      row.spec.forbid_stops = position < kForbiddenUntil ? 1 : 0;
    }
    return plan;
  }

  void Take(const StepResult& result) {
    for (size_t i = 0; i < kSessions; ++i) {
      EXPECT_TRUE(result.rows[i].status.ok()) << result.rows[i].status;
      texts_[i].push_back(result.rows[i].samples[0].token);
      counts_[i].Add(texts_[i].back());
    }
  }

  const std::vector<std::vector<uint32_t>>& texts() const { return texts_; }

 private:
  Engine& engine_;
  const size_t drawn_;
  SamplingParams greedy_, random_;
  std::vector<uint32_t> even_;
  std::vector<std::vector<uint32_t>> texts_;
  std::vector<TokenCounts> counts_;
  std::vector<uint32_t> bases_, tails_;
  std::vector<StreamPages> pages_;
};

// Continues kSessions short prompts on an engine for `steps` tokens, greedily but for session
// `drawn`. Session 1 may at first not sample even ids, of which there are too many for the device,
// so the host samples it until then and the device afterwards. With `ahead`, each step is launched
// before the one before it is awaited.
std::vector<std::vector<uint32_t>> Continue(Engine& engine, size_t steps, bool ahead,
                                            size_t drawn) {
  Continuation sessions(engine, drawn);
  StepTicket ticket = engine.Launch(sessions.Plan(0, 3, false));
  for (size_t step = 0; step < steps; ++step) {
    if (!ahead) sessions.Take(engine.Await(ticket));
    const StepTicket next = engine.Launch(sessions.Plan(3 + step, 1, ahead));
    if (ahead) sessions.Take(engine.Await(ticket));
    ticket = next;
  }
  sessions.Take(engine.Await(ticket));
  return sessions.texts();
}

class Float8Test : public testing::TestWithParam<const char*> {};

// Weights in fp8 change the numbers, and not what they do not depend on.
TEST_P(Float8Test, HasTheSameBitsFromEverySchedule) {
  const std::string model = std::string("tests/parity/fixtures/") + GetParam();
  const auto exact = EngineOn(std::make_unique<FakeDevice>(), model);
  const auto rounded = EngineOn(std::make_unique<FakeDevice>(), model, {.weights = DType::kFloat8});
  ASSERT_TRUE(rounded.ok()) << rounded.status();
  std::vector<uint32_t> text;
  for (uint32_t i = 0; i < kTokens; ++i) text.push_back(i * 7 % rounded->engine->vocab_size());
  const Answers whole = Feed(*rounded->engine, text, kTokens);
  const Answers single = Feed(*rounded->engine, text, 1);
  EXPECT_TRUE(Same(whole, single));
  const double distance = Float8Distance(model, Feed(*exact->engine, text, kTokens), whole);
  std::printf("%s: log-probabilities in fp8 differ by %.2g\n", GetParam(), distance);
  EXPECT_GT(distance, 0);
  EXPECT_LE(distance, 1);
}
INSTANTIATE_TEST_SUITE_P(Models, Float8Test,
                         testing::Values("mamba2_hf", "upstream_hf_granite_moe",
                                         "upstream_hf_nemotron_h_latent"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Float8CpuTest, TheCpuRefusesIt) {
  LoadOptions options;
  options.weight_dtype = DType::kFloat8;
  const auto loaded = LoadModel("tests/parity/fixtures/mamba2_hf", options);
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument) << loaded.status();
}

TEST_P(FakeDeviceTest, RunningAheadChangesNothing) {
  const auto ahead =
      EngineOn(LateFakeDevice(), std::string("tests/parity/fixtures/") + GetParam(), {.depth = 2});
  ASSERT_TRUE(ahead.ok()) << ahead.status();
  for (const size_t drawn : {kSessions, size_t{2}}) {  // none; one with penalties
    const auto expected = Continue(engine(), 40, false, drawn);
    EXPECT_EQ(Continue(*ahead->engine, 40, true, drawn), expected);
    EXPECT_EQ(Continue(*ahead->engine, 40, false, drawn), expected);
  }
}

// --kv-dtype bf16 where everything else is fp32, on both devices.
TEST(FakeDeviceEngineTest, KeysAndValuesMayBeRounded) {
  const std::string model = "tests/parity/fixtures/upstream_hf_qwen3";
  const auto device = EngineOn(std::make_unique<FakeDevice>(), model, {.kv = DType::kBFloat16});
  ASSERT_TRUE(device.ok()) << device.status();
  const auto exact = CpuEngineFor(model), rounded = CpuEngineFor(model, DType::kBFloat16);
  const PageCapacity& pages = exact->capacity().pages[0];
  EXPECT_EQ(rounded->capacity().pages[0].page_bytes, pages.page_bytes / 2);
  EXPECT_EQ(device->engine->capacity().pages[0].page_bytes, pages.page_bytes / 2);
  std::mt19937 random(TestSeed());
  std::vector<uint32_t> text(kTokens);
  for (uint32_t& token : text) token = random() % exact->vocab_size();
  const Answers whole = Feed(*device->engine, text, kTokens);
  const double apart = Distance(Feed(*rounded, text, kTokens), Feed(*exact, text, kTokens));
  EXPECT_GT(apart, 0);
  EXPECT_LE(apart, 0.1);
  EXPECT_LE(Distance(Feed(*rounded, text, kTokens), whole), 0.02);
  EXPECT_EQ(Distance(Feed(*device->engine, text, 1), whole), 0);
}

// Prompts of all lengths, many rows, log-probabilities, penalties: all memory was there before.
TEST_P(FakeDeviceTest, StepsAllocateNothing) {
  const auto& device = static_cast<const FakeDevice&>(*device_.device);
  const size_t allocations = device.allocations();
  const DeviceMemory memory = engine().memory();
  EXPECT_GT(memory.weights, 0u);
  EXPECT_GT(memory.temporaries, 0u);
  EXPECT_GT(memory.tails, 0u);
  EXPECT_EQ(memory.weights + memory.bases + memory.tails + memory.pages + memory.temporaries,
            device.allocated_bytes());
  for (const size_t longest : {1, 5, 300}) {
    std::vector<std::vector<uint32_t>> texts;
    for (size_t i = 0; i < 6; ++i) texts.push_back(RandomText(longest));
    FeedTogether(engine(), texts, longest, random_);
  }
  for (const size_t length : {1024, 1023, 700, 65, 3}) {
    Stream stream(engine());
    StepPlan plan;
    stream.Add(plan, RandomText(length), length, 1);
    EXPECT_TRUE(engine().Step(plan).rows[0].status.ok());
  }
  EXPECT_EQ(device.allocations(), allocations);
}

INSTANTIATE_TEST_SUITE_P(
    Mixers, FakeDeviceTest,
    testing::Values(
        "falcon_mamba", "mamba_bias_untied", "h3", "h3_head_dim_2_zoh", "mixture_state_spaces",
        "mamba2_hf", "gla_conv_clamp_gqa", "retnet_conv_gqa", "gated_deltanet_grouped_no_gate",
        "delta_net_no_conv_no_beta", "softmax_gate_norm_no_rope", "softmax_window_hybrid",
        "fla_transformer", "fla_gla_attn", "upstream_hf_llama_bias", "upstream_hf_llama_gqa",
        "upstream_hf_qwen3", "upstream_hf_mistral_window", "upstream_hf_qwen3_next_dense",
        "upstream_hf_granite_dense", "hattention_clamp", "log_linear_mamba2_clamp",
        "h_gated_deltanet", "h_gated_deltanet_negative_clamp", "log_linear_gated_deltanet_clamp",
        "linear_attn_elu_norm", "linear_attn_hedgehog", "linear_attn_product",
        "linear_attn_random_exp", "linear_attn_random_relu", "ahla_decay", "ahla_norm_gqa",
        "hla_masked", "hla_masked_decay_conv", "hla_masked_gqa_wide", "hla_masked_norm", "hla_none",
        "hla_serial_ridge", "hla_third_gqa_rotary", "hla_third_norm", "hla_third_paper",
        "upstream_hf_granite_moe", "upstream_hf_qwen3_next", "upstream_hf_qwen3_next_all_weights",
        "upstream_hf_nemotron_h_latent", "anna", "anna_cross_polytope",
        "anna_cross_polytope_strict", "anna_strict_wide", "kda_grouped", "kda_bound_negative",
        "latent_attention", "rg_lru_wide", "gated_convolution_bias", "rwkv6", "rwkv6_attn",
        "rwkv6_wide_tied", "rwkv7", "rwkv7_old_attn", "rwkv7_wide_tied", "mixture_rwkv7",
        "upstream_hf_glm5_next", "upstream_hf_qwen4_exp"),
    [](const auto& info) { return std::string(info.param); });

INSTANTIATE_TEST_SUITE_P(
    Formats, FakeFormatTest,
    testing::Values(
        "upstream_hf_nemotron_h", "upstream_hf_kimi_linear", "upstream_hf_kimi_linear_low_rank",
        "upstream_hf_lfm2_moe", "upstream_hf_lfm2_moe_all_weights", "upstream_hf_qwen3_5_moe",
        "upstream_hf_glm5_next_bias", "upstream_hf_qwen4_exp_text", "upstream_hf_bamba_bias",
        "upstream_hf_qwen3_5_predictor", "upstream_hf_nemotron_h_predictor",
        "upstream_hf_falcon_h1", "upstream_hf_falcon_h1_norm", "upstream_hf_falcon_h1_norm_first",
        "upstream_hf_jamba", "upstream_hf_jamba_bias", "upstream_hf_lfm2", "upstream_hf_lfm2_bias",
        "upstream_hf_minimax", "upstream_hf_minimax_one_layer", "upstream_hf_olmo_hybrid",
        "upstream_hf_olmo_hybrid_rope", "upstream_hf_qwen3_5_text", "upstream_hf_recurrent_gemma",
        "upstream_hf_recurrent_gemma_bias", "upstream_hf_zamba2", "upstream_hf_zamba2_adapters",
        "upstream_hf_zamba2_untied"),
    [](const auto& info) { return std::string(info.param); });

INSTANTIATE_TEST_SUITE_P(Formats, FakeHeadTest,
                         testing::Values("upstream_hf_qwen3_5_predictor",
                                         "upstream_hf_nemotron_h_predictor"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace rivulet
