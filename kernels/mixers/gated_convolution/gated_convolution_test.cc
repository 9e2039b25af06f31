// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/gated_convolution/gated_convolution.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mixers/core_subject.h"
#include "kernels/mixers/gated_convolution/gated_convolution_reference.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/gated_convolution/vectors/vectors.json";

struct Shape {
  size_t channels = 0;
  size_t window = 0;
  bool bias = false;
};

AlignedBuffer<float> Numbers(std::string_view name, size_t count) {
  AlignedBuffer<float> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = GeneratedFloat(name, 0, i, -1.0, 1.0);
  return numbers;
}

AlignedBuffer<float> Weight(const Shape& shape) {
  return Numbers("weight", shape.channels * shape.window);
}
AlignedBuffer<float> Bias(const Shape& shape) {
  return Numbers("bias", shape.bias ? shape.channels : 0);
}

std::unique_ptr<SuiteSubject> MakeSubject(const Shape& shape) {
  const size_t channels = shape.channels;
  const auto field = [=](const char* name) {
    return InputField{name, 0, 1, channels, channels, -1.0, 1.0};
  };
  auto subject = std::make_unique<CoreSubject>(
      std::vector<InputField>{field("B"), field("C"), field("x")}, channels);
  const auto convolution = std::make_shared<GatedConvolution>(Weight(shape), Bias(shape), channels,
                                                              shape.window, subject->state_layout);
  const auto split = [](const CoreSubject::Inputs& x) {
    return GatedConvolutionInput{x["B"], x["C"], x["x"]};
  };
  subject->run = [=](const LayerStep& step, const CoreSubject::Inputs& inputs, FloatMatrix out) {
    convolution->Run(step, split(inputs), out);
  };
  subject->reference = [=](const CoreSubject::Inputs& inputs) {
    return GatedConvolutionReference(Weight(shape), Bias(shape), shape.window, split(inputs));
  };
  return subject;
}

SuiteCase Core(std::string name, const Shape& shape) {
  return {std::move(name), [=] { return MakeSubject(shape); }};
}

std::vector<SuiteCase> CoreCases() {
  return {Core("w2_c1", {1, 2, false}), Core("w3_c48", {48, 3, false}),
          Core("w3_c33_bias", {33, 3, true}), Core("w4_c600", {600, 4, false}),
          Core("w16_c20_bias", {20, 16, true})};
}

INSTANTIATE_TEST_SUITE_P(GatedConvolution, MixerSuite,
                         testing::ValuesIn(BothIntervals(CoreCases())), SuiteCaseName);

TEST(GatedConvolution, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    return MakeSubject({p.at("channels"), p.at("window"), p.at("bias")});
  });
}

TEST(GatedConvolution, TheStateIsAFewRowsOfTheLayersWidth) {
  StateLayout layout;
  const Shape shape{64, 3, false};
  const GatedConvolution convolution(Weight(shape), Bias(shape), 64, 3, layout);
  EXPECT_EQ(layout.base_bytes(), 2 * 64 * sizeof(float));
  EXPECT_EQ(layout.tail_bytes(), 16 * 64 * sizeof(float));
}

}  // namespace
}  // namespace rivulet
