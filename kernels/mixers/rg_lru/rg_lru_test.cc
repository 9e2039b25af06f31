// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "kernels/mixers/rg_lru/rg_lru_recurrence.h"
#include "kernels/mixers/rg_lru/rg_lru_reference.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/rg_lru/vectors/vectors.json";

struct Shape {
  size_t width = 0;
  double fastest = 0, slowest = 0;  // rates are drawn from [-fastest, -slowest)
};

AlignedBuffer<float> Rate(const Shape& shape) {
  AlignedBuffer<float> rate(shape.width);
  for (size_t i = 0; i < rate.size(); ++i) {
    rate[i] = GeneratedFloat("rate", 0, i, -shape.fastest, -shape.slowest);
  }
  return rate;
}

std::unique_ptr<SuiteSubject> MakeSubject(const Shape& shape) {
  const size_t width = shape.width;
  const auto field = [=](const char* name, double bound) {
    return InputField{name, 0, 1, width, width, -bound, bound};
  };
  auto subject = std::make_unique<CoreSubject>(
      std::vector<InputField>{field("x", 1.0), field("i", 3.0), field("r", 3.0)}, width);
  const auto recurrence = std::make_shared<RgLruRecurrence>(Rate(shape), subject->state_layout);
  const auto split = [](const CoreSubject::Inputs& x) {
    return RgLruInput{x["x"], x["i"], x["r"]};
  };
  subject->run = [=](const LayerStep& step, const CoreSubject::Inputs& inputs, FloatMatrix out) {
    recurrence->Run(step.segments, step.state, split(inputs), out, *step.pool);
  };
  subject->reference = [=](const CoreSubject::Inputs& inputs) {
    return RgLruReference(Rate(shape), split(inputs));
  };
  return subject;
}

SuiteCase Core(std::string name, const Shape& shape) {
  return {std::move(name), [=] { return MakeSubject(shape); }};
}

std::vector<SuiteCase> CoreCases() {
  return {Core("w1", {1, 0.5, 0.1}), Core("w16_hardly_decays", {16, 1e-4, 1e-6}),
          Core("w33", {33, 1.0, 0.01}), Core("w600_forgets_at_once", {600, 200.0, 0.1})};
}

INSTANTIATE_TEST_SUITE_P(RgLru, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(RgLru, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    return MakeSubject({p.at("width"), p.at("fastest"), p.at("slowest")});
  });
}

TEST(RgLru, TheStateIsANumberAChannel) {
  StateLayout layout;
  const RgLruRecurrence recurrence(Rate({64, 1.0, 0.1}), layout);
  EXPECT_EQ(layout.base_bytes(), 64 * sizeof(float));
  EXPECT_EQ(layout.tail_bytes(), 16 * 64 * sizeof(float));
  EXPECT_FALSE(layout.running_tail());  // a token can be taken back
}

}  // namespace
}  // namespace rivulet
