// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

// The recurrence alone: columns q | k | v.
class CoreSubject : public SuiteSubject {
 public:
  CoreSubject(const H3Shape& shape, double radius)
      : constants_(MakeConstants(shape, radius)), recurrence_(shape, constants_, layout_) {}

  std::vector<InputField> fields() const override {
    const size_t c = shape().columns(), heads = shape().heads, padded = shape().padded_heads();
    return {{"q", 0, shape().head_dim, heads, padded, -1.0, 1.0},
            {"k", c, shape().head_dim, heads, padded, -1.0, 1.0},
            {"v", 2 * c, shape().head_dim, heads, padded, -1.0, 1.0}};
  }
  size_t input_columns() const override { return 3 * shape().columns(); }
  size_t output_columns() const override { return shape().columns(); }
  const StateLayout& layout() const override { return layout_; }
  void Run(std::span<const Segment> segments, const LayerState& state, ConstFloatMatrix inputs,
           FloatMatrix outputs, ThreadPool& pool) override {
    recurrence_.Run(segments, state, Split(inputs), outputs, pool);
  }
  std::vector<double> Reference(ConstFloatMatrix inputs) const override {
    return H3Reference(shape(), constants_, Split(inputs));
  }

 private:
  const H3Shape& shape() const { return recurrence_.shape(); }
  H3Input Split(ConstFloatMatrix x) const {
    const size_t c = shape().columns();
    return {x.Columns(0, c), x.Columns(c, c), x.Columns(2 * c, c)};
  }

  StateLayout layout_{SuiteFoldInterval()};
  H3Constants constants_;
  H3Recurrence recurrence_;
};

SuiteCase Core(std::string name, const H3Shape& shape, double radius) {
  return {std::move(name), [=] { return std::make_unique<CoreSubject>(shape, radius); }};
}

// The window's edges: 1, no more than a chunk, one chunk and a token, several chunks.
std::vector<SuiteCase> CoreCases() {
  return {
      Core("n1_m1_hd1", {33, 1, 1, 1}, 0.9),      Core("n8_m4_hd1", {16, 1, 8, 4}, 0.99),
      Core("n16_m8_hd2", {7, 2, 16, 8}, 0.99),    Core("n17_m8_hd1", {20, 1, 17, 8}, 0.999),
      Core("n18_m3_hd4", {5, 4, 18, 3}, 0.95),    Core("n64_m32_hd1", {50, 1, 64, 32}, 0.999),
      Core("n64_m32_hd2", {19, 2, 64, 32}, 0.99), Core("n256_m128_hd1", {3, 1, 256, 128}, 0.99)};
}

INSTANTIATE_TEST_SUITE_P(H3, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(H3, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    const H3Shape shape{p.at("heads"), p.at("head_dim"), p.at("window"), p.at("modes")};
    return std::make_unique<CoreSubject>(shape, p.at("radius"));
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
