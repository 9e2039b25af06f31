// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a model's own head guesses depends on the session's tokens alone: long random schedules of
// prompts, drafts that are right in part, forks and rewinds, where each guess must be that of the
// same tokens in a new session. Where the head is left out of steps, which a device can do, there
// is that guess or none. On the CPU, on a fake device, and on the GPU.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"
#include "nlohmann/json.hpp"
#include "server/engine/cpu_engine.h"
#include "server/engine/device_engine.h"
#include "server/engine/random_model.h"
#include "server/engine/test_models.h"
#include "server/session/session.h"

namespace rivulet {
namespace {

using Tokens = std::vector<uint32_t>;
constexpr uint64_t kLongest = 150;
constexpr size_t kMostSessions = 4;

// `device`: null on the CPU.
std::shared_ptr<const LoadedModel> Load(const std::string& name, Device* device) {
  LoadOptions options;
  options.predictor = true;
  options.mixer.device = device;
  if (name.starts_with("upstream")) return *LoadModel("tests/parity/fixtures/" + name, options);
  for (const TestModel& test : AllTestModels()) {
    if (test.name == name) return *MakeRandomModel(nlohmann::json::parse(test.config), 1, options);
  }
  return nullptr;
}

class GuessesTest : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    const auto& [model, kind] = GetParam();
    if (kind == "Gpu") {
      RIVULET_NEED_GPU();
      auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
      ASSERT_TRUE(gpu.ok()) << gpu.status();
      device_ = *std::move(gpu);
    } else if (kind == "FakeDevice") {
      device_ = LateFakeDevice();
      rounds_ = 150;  // it is slow
    }
    auto engine = MakeEngine(Load(model, device_.get()));
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    params_.seed = random_();
    sessions_.reserve(kMostSessions);  // references into it stay
    sessions_.push_back(*Session::Create(engine_->states()));
    Feed(*sessions_[0], Random(5), 0);
  }

  absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(std::shared_ptr<const LoadedModel> model) {
    const EngineOptions options = {
        .threads = 2, .state_memory = uint64_t{256} << 20, .state_context = 256};
    if (device_ == nullptr) return MakeCpuEngine(std::move(model), options);
    return MakeDeviceEngine(std::move(model), device_.get(), options);
  }

  uint64_t Below(uint64_t limit) { return random_() % limit; }
  Tokens Random(size_t count) {
    Tokens tokens(count);
    for (uint32_t& token : tokens) token = static_cast<uint32_t>(Below(engine_->vocab_size()));
    return tokens;
  }

  void Run(const Segment& segment, Tokens tokens) {
    StepPlan plan;
    plan.tokens = std::move(tokens);
    StepRow& row = plan.rows.emplace_back();
    row.segment = segment;
    row.samples = static_cast<uint32_t>(Below(2));  // a device replays steps of one token with one
    row.spec.params = &params_;
    plan.head_follows = left_out_ == 0 || Below(left_out_) != 0;
    const StepResult result = engine_->Step(plan);
    EXPECT_FALSE(result.head_followed && !plan.head_follows);
    ASSERT_TRUE(result.rows[0].status.ok()) << result.rows[0].status;
  }
  // All but the last token, in pieces of up to `piece` (0: one).
  void Feed(Session& session, const Tokens& tokens, size_t piece) {
    session.Append(tokens);
    while (session.pending() > 1) {
      const size_t count = piece == 0 ? session.pending() - 1
                                      : std::min<size_t>(session.pending() - 1, 1 + Below(piece));
      Tokens now;
      session.tokens().CopyTo(session.position(), count, now);
      const bool keeps = engine_->capacity().fold_bases && !session.kept().empty() && Below(2) == 0;
      const BorderRule borders = {keeps ? engine_->capacity().fold_interval : 0u, 100};
      Run(*session.PlanSegment(0, count, borders), std::move(now));
      session.CommitSegment();
    }
  }
  // A step with drafts, of which the first `right` are.
  void Check(Session& session, const Tokens& drafts, size_t right) {
    Tokens tokens = {session.tokens()[session.position()]};
    tokens.insert(tokens.end(), drafts.begin(), drafts.end());
    Run(*session.PlanDrafts(0, drafts.size()), std::move(tokens));
    session.CommitTokens(1 + right);
    session.CancelSegment();
    session.Append(std::span(drafts).first(right));
    session.Append(Random(1)[0]);
  }

  // Of all these at once.
  std::vector<Tokens> Guess(const std::vector<Session*>& sessions, uint32_t most) {
    GuessPlan plan;
    std::vector<size_t> rows;
    for (size_t i = 0; i < sessions.size(); ++i) {
      Session& session = *sessions[i];
      const uint64_t left = 15 - session.position() % 16;
      if (left == 0) continue;
      GuessRow& row = plan.rows.emplace_back();
      row.segment = *session.PlanSegment(plan.tokens.size(), 1);
      row.count = static_cast<uint32_t>(std::min<uint64_t>(most, left));
      row.params = &params_;
      row.place = {1, session.tokens().size()};
      plan.tokens.push_back(session.tokens()[session.position()]);
      rows.push_back(i);
    }
    std::vector<Tokens> guesses(sessions.size());
    if (plan.rows.empty()) return guesses;
    const GuessResult result = engine_->Guess(plan);
    EXPECT_TRUE(result.status.ok()) << result.status;
    for (size_t r = 0; r < rows.size(); ++r) {
      guesses[rows[r]] = result.guesses[r];
      if (left_out_ == 0 || device_ == nullptr || !result.guesses[r].empty()) {
        EXPECT_EQ(result.guesses[r].size(), plan.rows[r].count);
      }
      asked_ += plan.rows[r].count;
      sessions[rows[r]]->CancelSegment();
    }
    return guesses;
  }

  Tokens GuessAnew(const Session& session, uint32_t most) {
    const uint64_t left_out = std::exchange(left_out_, 0), asked = asked_;
    const auto anew = *Session::Create(engine_->states());
    Feed(*anew, session.tokens().Copy(), 0);
    const Tokens guesses = Guess({anew.get()}, most)[0];
    left_out_ = left_out;
    asked_ = asked;
    return guesses;
  }

  void GuessAndCompare() {
    std::vector<Session*> sessions;
    for (const auto& session : sessions_) {
      if (Below(3) != 0) sessions.push_back(session.get());
    }
    const auto most = static_cast<uint32_t>(1 + Below(5));
    const std::vector<Tokens> guesses = Guess(sessions, most);
    for (size_t i = 0; i < sessions.size(); ++i) {
      if (left_out_ > 0 && guesses[i].empty()) continue;
      ASSERT_EQ(guesses[i], GuessAnew(*sessions[i], most)) << sessions[i]->tokens().size();
      compared_ += guesses[i].size();
    }
  }

  void GoOn() {
    for (size_t i = 0; i < rounds_ && !HasFatalFailure(); ++i) {
      auto& session = sessions_[Below(sessions_.size())];
      Go(session);
      if (Below(2) == 0) GuessAndCompare();
      if (session->tokens().size() < kLongest) continue;
      session = *Session::Create(engine_->states());
      Feed(*session, Random(1 + Below(40)), 20);
    }
  }
  void Go(std::unique_ptr<Session>& session) {
    switch (Below(6)) {
      case 0:
        return Feed(*session, Random(1 + Below(60)), 50);
      case 1:
        if (sessions_.size() < kMostSessions) sessions_.push_back(*session->Fork());
        return;
      case 2:
        return Rewind(session);
      default:
        const Tokens drafts = Random(Below(std::min<size_t>(session->MostDrafts(), 6) + 1));
        return Check(*session, drafts, Below(drafts.size() + 1));
    }
  }
  // To a position that it keeps, or to any after it.
  void Rewind(std::unique_ptr<Session>& session) {
    session->Rest();
    if (Below(2) == 0) session->Keep(3, nullptr);
    if (!session->kept().empty()) {
      const uint64_t oldest = session->kept().front().tokens;
      const uint64_t to = oldest + Below(session->tokens().size() - oldest + 1);
      session = *session->ForkAt(to, /*with_borders=*/Below(2) == 0);
    }
    ASSERT_TRUE(session->Wake().ok());
    Feed(*session, {}, 7);
  }

  std::mt19937_64 random_{TestSeed()};
  std::unique_ptr<Device> device_;  // null: the CPU
  std::unique_ptr<Engine> engine_;
  size_t rounds_ = 400;
  SamplingParams params_;
  std::vector<std::unique_ptr<Session>> sessions_;
  uint64_t left_out_ = 0;            // the head, of one in so many steps; 0: of none
  size_t asked_ = 0, compared_ = 0;  // guesses
};

TEST_P(GuessesTest, DependOnTheTokensAlone) {
  GoOn();
  EXPECT_GT(compared_, rounds_ / 2);
  EXPECT_EQ(asked_, compared_);
}

// A hole in what the head knows stays with every session that begins behind it, and no other.
TEST_P(GuessesTest, ThereAreNoneOnceTheHeadWasLeftOut) {
  left_out_ = 25;
  rounds_ *= 2;
  GoOn();
  EXPECT_GT(compared_, rounds_ / 10);
  if (device_ == nullptr) {
    EXPECT_EQ(asked_, compared_) << "the CPU's head leaves nothing out";
  } else {
    EXPECT_LT(compared_, asked_ * 9 / 10);
  }
}

TEST_P(GuessesTest, ARewindToBeforeTheHoleHasGuessesAgain) {
  if (device_ == nullptr) GTEST_SKIP() << "the CPU's head leaves nothing out";
  auto session = *Session::Create(engine_->states());
  Feed(*session, Random(40), 0);
  session->Rest();
  session->Keep(1, nullptr);
  ASSERT_TRUE(session->Wake().ok());
  const auto whole = *session->Fork();
  left_out_ = 1;
  Feed(*session, Random(40), 7);
  const auto fork = *session->Fork();
  left_out_ = UINT64_MAX;  // it follows from here on
  Feed(*session, Random(20), 7);
  Check(*session, Random(1), 1);
  session->Rest();
  const auto rewound = *session->ForkAt(41, false), later = *session->ForkAt(100, false);
  for (Session* asleep : {session.get(), rewound.get(), later.get()}) {
    ASSERT_TRUE(asleep->Wake().ok());
    Feed(*asleep, {}, 0);
  }
  const auto guesses =
      Guess({session.get(), fork.get(), later.get(), whole.get(), rewound.get()}, 1);
  EXPECT_TRUE(guesses[0].empty());
  EXPECT_TRUE(guesses[1].empty());
  EXPECT_TRUE(guesses[2].empty());
  EXPECT_EQ(guesses[3], GuessAnew(*whole, 1));
  EXPECT_EQ(guesses[4], GuessAnew(*rewound, 1));
  EXPECT_EQ(guesses[4].size(), 1u);
  EXPECT_EQ(guesses[3].size(), 1u);
}

// The head runs in a step for some of its rows, and the others still lack what came before.
TEST_P(GuessesTest, ANeighbourWithoutAHoleClosesNone) {
  if (device_ == nullptr) GTEST_SKIP() << "the CPU's head leaves nothing out";
  const auto whole = *sessions_[0]->Fork();
  left_out_ = 1;
  Feed(*sessions_[0], Random(12), 0);
  left_out_ = 0;
  StepPlan plan;
  for (Session* session : {sessions_[0].get(), whole.get()}) {
    session->Append(Random(1));
    plan.rows.emplace_back().segment = *session->PlanSegment(plan.tokens.size(), 1);
    plan.tokens.push_back(session->tokens()[session->position()]);
  }
  EXPECT_TRUE(engine_->Step(plan).head_followed);
  for (Session* session : {sessions_[0].get(), whole.get()}) session->CommitSegment();
  left_out_ = UINT64_MAX;
  const auto guesses = Guess({sessions_[0].get(), whole.get()}, 1);
  EXPECT_TRUE(guesses[0].empty());
  EXPECT_EQ(guesses[1], GuessAnew(*whole, 1));
  EXPECT_EQ(guesses[1].size(), 1u);
}

TEST_P(GuessesTest, ADeviceSpendsNoTimeOnRowsWithoutGuesses) {
  const auto* const fake = dynamic_cast<const FakeDevice*>(device_.get());
  if (fake == nullptr) GTEST_SKIP() << "replays are counted on the fake device";
  left_out_ = 1;
  Feed(*sessions_[0], Random(20), 0);
  const auto before = fake->replays();
  EXPECT_TRUE(Guess({sessions_[0].get()}, 1)[0].empty());
  EXPECT_EQ(fake->replays(), before);
}

// More rows than guess together, with counts of their own, and some with a bias.
TEST_P(GuessesTest, AreThoseOfARowAlone) {
  sessions_.clear();
  auto& tails = engine_->states().tails();
  const auto* const fake = dynamic_cast<const FakeDevice*>(device_.get());
  const size_t allocations = fake == nullptr ? 0 : fake->allocations();
  SamplingParams biased = params_;
  biased.logit_bias = {{7, 100.0f}};
  GuessPlan together;
  while (sessions_.size() < 140) {
    Session& session = *sessions_.emplace_back(*Session::Create(engine_->states()));
    Feed(session, Random(1 + Below(40)), 0);
    if (session.position() % 16 == 15) Check(session, {}, 0);
    GuessRow& row = together.rows.emplace_back();
    row.segment = *session.PlanSegment(together.tokens.size(), 1);
    row.count = static_cast<uint32_t>(1 + Below(15 - session.position() % 16));
    row.params = Below(4) == 0 ? &biased : &params_;
    row.place = {3, session.tokens().size()};
    together.tokens.push_back(session.tokens()[session.position()]);
  }
  ASSERT_EQ(tails.used(), sessions_.size());
  const GuessResult result = engine_->Guess(together);
  ASSERT_TRUE(result.status.ok()) << result.status;
  for (size_t r = 0; r < together.rows.size(); ++r) {
    GuessPlan alone{{together.tokens[r]}, {together.rows[r]}};
    alone.rows[0].segment.first_token = 0;
    ASSERT_EQ(engine_->Guess(alone).guesses[0], result.guesses[r]) << r;
    ASSERT_EQ(result.guesses[r].size(), together.rows[r].count);
    if (together.rows[r].params == &biased) {
      ASSERT_EQ(result.guesses[r], Tokens(together.rows[r].count, 7));
    }
    sessions_[r]->CancelSegment();
  }
  if (fake != nullptr) {
    EXPECT_EQ(fake->allocations(), allocations);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, GuessesTest,
    testing::Combine(testing::Values("Qwen3Next", "Experts", "upstream_hf_qwen3_5_predictor",
                                     "upstream_hf_nemotron_h_predictor"),
                     testing::Values("Cpu", "FakeDevice", "Gpu")),
    [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param); });

TEST(DeviceGuessesTest, AFailedDeviceGuessesNothing) {
  FakeDevice device;
  const auto engine = *MakeDeviceEngine(Load("Qwen3Next", &device), &device,
                                        {.state_memory = uint64_t{64} << 20, .state_context = 256});
  ASSERT_TRUE(engine->guesses());
  const auto session = *Session::Create(engine->states());
  session->Append(5);
  SamplingParams params;
  const GuessPlan plan{{5}, {{*session->PlanSegment(0, 1), 2, &params, {0, 1}}}};
  EXPECT_EQ(engine->Guess(plan).guesses[0].size(), 2u);
  device.on_wait = [] { return absl::InternalError("a trap"); };
  const GuessResult result = engine->Guess(plan);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable) << result.status;
  EXPECT_TRUE(result.guesses[0].empty());
  EXPECT_EQ(engine->failure(), result.status);
}

}  // namespace
}  // namespace rivulet
