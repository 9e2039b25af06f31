// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/h3/h3_recurrence.h"
#include "kernels/mixers/h3/h3_reference.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/h3/vectors/vectors.json";

AlignedBuffer<float> Numbers(std::string_view name, size_t count, double low, double high) {
  AlignedBuffer<float> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = GeneratedFloat(name, 0, i, low, high);
  return numbers;
}

// Poles at a distance of `radius` from 0, or down to half of it.
H3Constants MakeConstants(const H3Shape& shape, double radius) {
  const size_t count = shape.heads * shape.modes, channels = shape.heads * shape.head_dim;
  H3Constants constants{Numbers("taps", channels * shape.window, -1.0, 1.0),
                        AlignedBuffer<float>(count),
                        AlignedBuffer<float>(count),
                        Numbers("weight_real", count, -1.0, 1.0),
                        Numbers("weight_imaginary", count, -1.0, 1.0),
                        Numbers("D", shape.heads, -1.0, 1.0)};
  for (size_t i = 0; i < count; ++i) {
    const double distance = GeneratedFloat("pole_distance", 0, i, 0.5 * radius, radius);
    const double angle = GeneratedFloat("pole_angle", 0, i, 0.0, 3.0);
    constants.pole_real[i] = static_cast<float>(distance * std::cos(angle));
    constants.pole_imaginary[i] = static_cast<float>(distance * std::sin(angle));
  }
  return constants;
}

std::unique_ptr<SuiteSubject> MakeSubject(const H3Shape& shape, double radius,
                                          bool forgets = false) {
  const size_t padded = shape.padded_heads();
  const auto field = [&](const char* name) {
    return InputField{name, 0, shape.head_dim, shape.heads, padded, -1.0, 1.0};
  };
  auto subject = std::make_unique<CoreSubject>(
      std::vector<InputField>{field("q"), field("k"), field("v")}, shape.columns());
  if (forgets) subject->state_layout.SetForgets();
  const auto constants = std::make_shared<H3Constants>(MakeConstants(shape, radius));
  const auto recurrence = std::make_shared<H3Recurrence>(shape, *constants, subject->state_layout);
  const auto split = [](const CoreSubject::Inputs& x) { return H3Input{x["q"], x["k"], x["v"]}; };
  subject->run = [=](const LayerStep& step, const CoreSubject::Inputs& inputs, FloatMatrix out) {
    recurrence->Run(step.segments, step.state, split(inputs), out, *step.pool);
  };
  subject->reference = [=](const CoreSubject::Inputs& inputs) {
    return H3Reference(shape, *constants, split(inputs));
  };
  return subject;
}

SuiteCase Core(std::string name, const H3Shape& shape, double radius, bool forgets = false) {
  return {std::move(name), [=] { return MakeSubject(shape, radius, forgets); }};
}

// The window's edges: 1, no more than a chunk, one chunk and a token, several chunks.
std::vector<SuiteCase> CoreCases() {
  return {Core("n1_m1_hd1", {33, 1, 1, 1}, 0.9),
          Core("n8_m4_hd1", {16, 1, 8, 4}, 0.99),
          Core("n16_m8_hd2", {7, 2, 16, 8}, 0.99),
          Core("n17_m8_hd1", {20, 1, 17, 8}, 0.999),
          Core("n18_m3_hd4", {5, 4, 18, 3}, 0.95),
          Core("n64_m32_hd1", {50, 1, 64, 32}, 0.999),
          Core("n64_m32_hd2", {19, 2, 64, 32}, 0.99),
          Core("n256_m128_hd1", {3, 1, 256, 128}, 0.99),
          Core("n18_m3_hd4_forgets", {5, 4, 18, 3}, 0.95, true),
          Core("n64_m32_hd2_forgets", {19, 2, 64, 32}, 0.99, true)};
}

INSTANTIATE_TEST_SUITE_P(H3, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(H3, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    const H3Shape shape{p.at("heads"), p.at("head_dim"), p.at("window"), p.at("modes")};
    return MakeSubject(shape, p.at("radius"));
  });
}

TEST(H3, TheStateOfAPublicLayer) {
  StateLayout layout;
  const H3Shape shape{48, 1, 64, 32};
  const H3Recurrence recurrence(shape, MakeConstants(shape, 0.9), layout);
  EXPECT_EQ(layout.base_bytes(), 48 * (64 + 64) * sizeof(float));
  EXPECT_EQ(layout.tail_bytes(), 48 * (16 + 64) * sizeof(float));
}

}  // namespace
}  // namespace rivulet
