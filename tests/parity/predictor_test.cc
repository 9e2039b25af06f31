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
#include <vector>

#include "gtest/gtest.h"
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

  // Logits [T - 1, vocab] of the predictor, fed in pieces of `piece` tokens.
  std::vector<float> Run(size_t piece) {
    Pool model(model_->StateLayouts()), predictor(model_->PredictorLayouts());
    ThreadPool threads(2);
    std::vector<float> logits;
    const std::span<const uint32_t> ids = expected_.input_ids;
    for (size_t first = 0; first + 1 < ids.size(); first += piece) {
      const size_t count = std::min(piece, ids.size() - 1 - first);
      Workspace step, layer;
      const LanguageModel::Lent lent{&layer, &step, &threads};
      const FloatMatrix stream = step.Take(count, model_->hidden());
      const FloatMatrix x = step.Take(count, model_->hidden());
      const FloatMatrix rows = step.Take(count, model_->vocab());
      const auto now = ids.subspan(first, count), next = ids.subspan(first + 1, count);
      const Segment segment = model.Next(now), predicted = predictor.Next(next);
      EXPECT_TRUE(model_->Forward(now, {&segment, 1}, model.states(), lent, stream).ok());
      EXPECT_TRUE(model_->Predict(next, stream, {&predicted, 1}, predictor.states(), lent, x).ok());
      model_->PredictedLogits(x, lent, rows);
      for (size_t t = 0; t < count; ++t) {
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
      const double difference = row[i] - log_sum - expected_.predicted_logprobs[t][i];
      worst = std::isfinite(difference) ? std::max(worst, std::abs(difference)) : INFINITY;
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

std::vector<std::string> Fixtures() {
  std::vector<std::string> directories = FixtureDirectories();
  std::erase_if(directories, [](const std::string& name) { return !name.ends_with("_predictor"); });
  return directories;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, PredictorTest, testing::ValuesIn(Fixtures()),
                         [](const auto& info) {
                           return info.param.substr(info.param.rfind('/') + 1);
                         });

}  // namespace
}  // namespace rivulet
