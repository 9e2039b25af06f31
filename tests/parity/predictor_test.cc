// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The heads that predict the token after the next, against what transformers computes in float64.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/worst_difference.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"
#include "server/engine/cpu_engine.h"
#include "server/engine/device_engine.h"
#include "server/engine/language_model.h"
#include "server/session/session.h"
#include "tests/parity/expected.h"

namespace rivulet {
namespace {

constexpr double kTolerance = 2e-4;  // docs/architecture.md#bit-equality

// One session of a pool of its own.
class Pool {
 public:
  explicit Pool(const std::vector<const StateLayout*>& layouts)
      : states_(*StatePool::Make(AddUpLayouts(layouts), 64 << 20, 256)),
        session_(*Session::Create(*states_)) {}

  Segment Next(std::span<const uint32_t> ids) {
    session_->Append(ids);
    return *session_->PlanSegment(0, ids.size());
  }
  void Commit() { session_->CommitSegment(); }
  const StatePool& states() const { return *states_; }

 private:
  std::unique_ptr<StatePool> states_;
  std::unique_ptr<Session> session_;
};

class PredictorTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto expected = ReadExpected(GetParam());
    ASSERT_TRUE(expected.ok()) << expected.status();
    expected_ = *expected;
    LoadOptions options;
    options.predictor = true;
    auto model = LoadModel(GetParam(), options);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = std::make_unique<LanguageModel>(std::shared_ptr<const LoadedModel>(*std::move(model)));
  }

  // Logits [T - 1, vocab] of the predictor after each token but the first, fed in pieces of `piece`
  // tokens. Of the pieces that begin before `advanced` only the state is computed, and no logits.
  std::vector<float> Run(size_t piece, size_t advanced = 0) {
    Pool model(model_->StateLayouts()), predictor(model_->PredictorLayouts());
    ThreadPool threads(2);
    std::vector<float> logits;
    std::vector<float> before(model_->hidden());  // the stream behind the last token
    const std::span<const uint32_t> ids = expected_.input_ids;
    for (size_t first = 0; first < ids.size(); first += piece) {
      const size_t count = std::min(piece, ids.size() - first);
      Workspace step, layer;
      const LanguageModel::Lent lent{&layer, &step, &threads};
      const FloatMatrix stream = step.Take(1 + count, model_->hidden());
      const FloatMatrix y = step.Take(count, model_->hidden());
      const FloatMatrix rows = step.Take(count, model_->vocab());
      const auto now = ids.subspan(first, count);
      const FloatMatrix after = stream.Rows(1, count);
      const Segment segment = model.Next(now), predicted = predictor.Next(now);
      EXPECT_TRUE(model_->Forward(now, {&segment, 1}, model.states(), lent, after).ok());
      model_->NormStream(after, lent, after);
      std::copy(before.begin(), before.end(), stream.row(0));
      std::copy_n(stream.row(count), before.size(), before.begin());
      const ConstFloatMatrix in = stream.Rows(0, count);
      const auto& states = predictor.states();
      const absl::Status status =
          first < advanced ? model_->AdvancePredictor(now, in, {&predicted, 1}, states, 0, lent)
                           : model_->Predict(now, in, {&predicted, 1}, states, 0, lent, y);
      EXPECT_TRUE(status.ok()) << status;
      if (first >= advanced) model_->NormedLogits(y, lent, rows);
      for (size_t t = first == 0 ? 1 : 0; t < count && first >= advanced; ++t) {
        logits.insert(logits.end(), rows.row(t), rows.row(t) + rows.columns);
      }
      model.Commit();
      predictor.Commit();
    }
    return logits;
  }

  ExpectedOutputs expected_;
  std::unique_ptr<LanguageModel> model_;
};

double LogSum(std::span<const float> logits) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  return std::log(sum);
}

TEST_P(PredictorTest, LogProbabilities) {
  const std::vector<float> logits = Run(expected_.input_ids.size());
  ASSERT_EQ(logits.size(), expected_.predicted_logprobs.size() * expected_.vocab());
  double worst = 0;
  for (size_t t = 0; t < expected_.predicted_logprobs.size(); ++t) {
    const std::span<const float> row(logits.data() + t * expected_.vocab(), expected_.vocab());
    const double log_sum = LogSum(row);
    for (size_t i = 0; i < row.size(); ++i) {
      worst = WorstDifference(worst, row[i] - log_sum, expected_.predicted_logprobs[t][i]);
    }
  }
  std::cout << GetParam() << ": largest difference " << worst << std::endl;
  EXPECT_LE(worst, kTolerance);
}

TEST_P(PredictorTest, AnyCutGivesTheSameBits) {
  const std::vector<float> whole = Run(expected_.input_ids.size());
  for (const size_t piece : {1, 5, 19}) {
    const std::vector<float> cut = Run(piece);
    ASSERT_EQ(cut.size(), whole.size());
    EXPECT_EQ(std::memcmp(cut.data(), whole.data(), whole.size() * sizeof(float)), 0) << piece;
  }
}

TEST_P(PredictorTest, WhatComesBehindTheLastMixerIsNotNeededForLaterTokens) {
  const std::vector<float> whole = Run(expected_.input_ids.size());
  for (const size_t piece : {1, 7}) {
    const std::vector<float> rest = Run(piece, /*advanced=*/piece * (21 / piece));
    ASSERT_LT(rest.size(), whole.size());
    ASSERT_GT(rest.size(), 0u);
    EXPECT_EQ(std::memcmp(rest.data(), whole.data() + whole.size() - rest.size(),
                          rest.size() * sizeof(float)),
              0)
        << piece;
  }
}

std::vector<std::string> Fixtures() {
  std::vector<std::string> directories = FixtureDirectories();
  std::erase_if(directories, [](const std::string& name) { return !name.ends_with("_predictor"); });
  return directories;
}

std::string NameOf(const std::string& fixture) { return fixture.substr(fixture.rfind('/') + 1); }

INSTANTIATE_TEST_SUITE_P(Fixtures, PredictorTest, testing::ValuesIn(Fixtures()),
                         [](const auto& info) { return NameOf(info.param); });

// Through engines, whose sessions keep what the head needs.
class EngineGuessTest : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    const std::string& kind = std::get<1>(GetParam());
    if (kind == "Gpu") {
      RIVULET_NEED_GPU();
      auto gpu = OpenCudaDevice(ProductPrecision::kFloat32);
      ASSERT_TRUE(gpu.ok()) << gpu.status();
      device_ = *std::move(gpu);
    } else if (kind == "FakeDevice") {
      device_ = std::make_unique<FakeDevice>();
    }
    auto engine = MakeEngine(device_.get());
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    greedy_.temperature = 0;
  }
  // `device`: null for one on the CPU.
  static absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(Device* device) {
    LoadOptions options;
    options.predictor = true;
    options.mixer.device = device;
    std::shared_ptr<const LoadedModel> model = *LoadModel(std::get<0>(GetParam()), options);
    const EngineOptions sizes = {.threads = 2, .state_memory = uint64_t{256} << 20};
    if (device == nullptr) return MakeCpuEngine(std::move(model), sizes);
    return MakeDeviceEngine(std::move(model), device, sizes);
  }

  using Tokens = std::vector<uint32_t>;
  // After each token of the text, up to `most` guesses: those behind the next one, which is known.
  std::vector<Tokens> GuessAll(Engine& engine, const Tokens& ids, uint64_t most) {
    const auto session = *Session::Create(engine.states());
    std::vector<Tokens> guesses;
    for (size_t t = 0; t < ids.size(); ++t) {
      session->Append(ids[t]);
      const Segment segment = *session->PlanSegment(0, 1);
      const auto count = static_cast<uint32_t>(std::min<uint64_t>(most, 15 - t % 16));
      guesses.emplace_back();
      if (count > 0) {
        GuessResult result = engine.Guess({{ids[t]}, {{segment, count, &greedy_, {0, t + 1}}}});
        EXPECT_TRUE(result.status.ok()) << result.status;
        guesses.back() = std::move(result.guesses[0]);
      }
      StepPlan step;
      step.tokens = {ids[t]};
      step.rows.emplace_back().segment = segment;
      EXPECT_TRUE(engine.Step(step).rows[0].status.ok());
      session->CommitSegment();
    }
    return guesses;
  }

  // How much less likely than the most likely token a guess may be.
  double Tolerance() const { return std::get<1>(GetParam()) == "Gpu" ? 0.02 : 2 * kTolerance; }

  std::unique_ptr<Device> device_;  // null: the CPU
  std::unique_ptr<Engine> engine_;
  SamplingParams greedy_;
};

TEST_P(EngineGuessTest, IsTheMostLikely) {
  const auto expected = *ReadExpected(std::get<0>(GetParam()));
  const std::vector<Tokens> guesses = GuessAll(*engine_, expected.input_ids, 1);
  size_t compared = 0;
  for (size_t t = 1; t < guesses.size(); ++t) {  // before the first there is nothing to guess from
    if (guesses[t].empty()) continue;
    const auto& row = expected.predicted_logprobs[t - 1];
    EXPECT_LE(*std::max_element(row.begin(), row.end()) - row[guesses[t][0]], Tolerance()) << t;
    ++compared;
  }
  EXPECT_GT(compared, 10u);
}

// Each after the guess before it. Two tokens may be nearly as likely: then a GPU, whose products
// have about 16 bits, may guess the other, and what follows differs too.
TEST_P(EngineGuessTest, GoesOnAsOnTheCpu) {
  const Tokens ids = ReadExpected(std::get<0>(GetParam()))->input_ids;
  const auto cpu = *MakeEngine(nullptr);
  const std::vector<Tokens> expected = GuessAll(*cpu, ids, 6), guesses = GuessAll(*engine_, ids, 6);
  size_t compared = 0, equal = 0;
  for (size_t t = 0; t < ids.size(); ++t) {
    ASSERT_EQ(guesses[t].size(), expected[t].size());
    for (size_t i = 0; i < expected[t].size(); ++i) {
      equal += guesses[t][i] == expected[t][i] ? 1 : 0;
      ++compared;
    }
  }
  std::cout << equal << " of " << compared << " guesses are the same" << std::endl;
  const bool rounds = std::get<1>(GetParam()) == "Gpu";
  EXPECT_GE(equal, compared * (rounds ? 7 : 9) / 10);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, EngineGuessTest,
                         testing::Combine(testing::ValuesIn(Fixtures()),
                                          testing::Values("Cpu", "FakeDevice", "Gpu")),
                         [](const auto& info) {
                           return NameOf(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                         });

}  // namespace
}  // namespace rivulet
