// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/mamba/mamba_recurrence.h"
#include "kernels/mixers/mamba/mamba_reference.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/mamba/vectors/vectors.json";

// Decay rates A are drawn from [-fastest, -slowest).
MambaConstants MakeConstants(const MambaShape& shape, double slowest, double fastest) {
  MambaConstants constants{AlignedBuffer<float>(shape.channels * shape.state_size),
                           AlignedBuffer<float>(shape.channels)};
  for (size_t i = 0; i < constants.a.size(); ++i) {
    constants.a[i] = GeneratedFloat("A", 0, i, -fastest, -slowest);
  }
  for (size_t i = 0; i < constants.d.size(); ++i) {
    constants.d[i] = GeneratedFloat("D", 0, i, 0.5, 1.5);
  }
  return constants;
}

std::unique_ptr<SuiteSubject> MakeSubject(const MambaShape& shape, double slowest, double fastest,
                                          bool forgets = false) {
  const size_t i = shape.channels, n = shape.state_size;
  auto subject =
      std::make_unique<CoreSubject>(std::vector<InputField>{{"x", 0, 1, i, i, -1.0, 1.0},
                                                            {"dt", 0, 1, i, i, -5.0, 1.0},
                                                            {"z", 0, 1, i, i, -2.0, 2.0},
                                                            {"B", 0, 1, n, n, -1.0, 1.0},
                                                            {"C", 0, 1, n, n, -1.0, 1.0}},
                                    i);
  if (forgets) subject->state_layout.SetForgets();
  const auto constants = std::make_shared<MambaConstants>(MakeConstants(shape, slowest, fastest));
  const auto recurrence =
      std::make_shared<MambaRecurrence>(shape, *constants, subject->state_layout);
  const auto split = [](const CoreSubject::Inputs& x) {
    return MambaInput{x["x"], x["dt"], x["z"], x["B"], x["C"]};
  };
  subject->run = [=](const LayerStep& step, const CoreSubject::Inputs& inputs, FloatMatrix out) {
    recurrence->Run(step.segments, step.state, split(inputs), out, *step.pool);
  };
  subject->reference = [=](const CoreSubject::Inputs& inputs) {
    return MambaReference(shape, *constants, split(inputs));
  };
  return subject;
}

SuiteCase Core(std::string name, const MambaShape& shape, double slowest, double fastest,
               bool forgets = false) {
  return {std::move(name), [=] { return MakeSubject(shape, slowest, fastest, forgets); }};
}

std::vector<SuiteCase> CoreCases() {
  return {Core("n1_i40", {40, 1}, 0.1, 1.0),
          Core("n8_i16", {16, 8}, 0.01, 1.0),
          Core("n8_i300_many_units", {300, 8}, 0.01, 16.0),
          Core("n16_i33", {33, 16}, 0.001, 0.1),
          Core("n16_i1", {1, 16}, 0.1, 16.0),
          Core("n24_i19", {19, 24}, 0.01, 1.0),
          Core("n64_i20", {20, 64}, 0.001, 1.0),
          Core("n256_i5", {5, 256}, 0.01, 0.3),
          Core("n16_i33_forgets", {33, 16}, 0.001, 0.1, true),
          Core("n8_i300_forgets", {300, 8}, 0.01, 16.0, true),
          Core("n24_i19_forgets", {19, 24}, 0.01, 1.0, true)};
}

INSTANTIATE_TEST_SUITE_P(Mamba, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(Mamba, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    return MakeSubject(MambaShape{p.at("channels"), p.at("state_size")}, p.at("slowest"),
                       p.at("fastest"));
  });
}

TEST(Mamba, StateIsTheRunningStateOnceInEachPart) {
  StateLayout layout;
  const MambaShape shape{33, 16};
  const MambaRecurrence recurrence(shape, MakeConstants(shape, 0.1, 1.0), layout);
  EXPECT_EQ(layout.base_bytes(), 48 * 16 * sizeof(float));
  EXPECT_EQ(layout.tail_bytes(), layout.base_bytes());
}

}  // namespace
}  // namespace rivulet
