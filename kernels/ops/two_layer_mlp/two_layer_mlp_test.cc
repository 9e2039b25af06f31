// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/two_layer_mlp/two_layer_mlp.h"

#include "kernels/base/test_support.h"

namespace rivulet {
namespace {

double GeluTanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

struct Weights {
  Weights(size_t hidden_size, size_t intermediate_size, std::mt19937_64& random)
      : hidden(hidden_size),
        intermediate(intermediate_size),
        first(RandomFloats(intermediate * hidden, random)),
        first_bias(RandomFloats(intermediate, random)),
        second(RandomFloats(hidden * intermediate, random)),
        second_bias(RandomFloats(hidden, random)) {}

  TwoLayerMlp Pack(Activation f = Activation::kGeluTanh) const {
    const DType fp32 = DType::kFloat32;
    return {Linear::Pack({{first.data(), fp32, intermediate, first_bias.data()}}, hidden, fp32),
            Linear::Pack({{second.data(), fp32, hidden, second_bias.data()}}, intermediate, fp32),
            f};
  }

  std::vector<double> Reference(const float* x) const {
    std::vector<double> y(second_bias.begin(), second_bias.end());
    for (size_t i = 0; i < intermediate; ++i) {
      double middle = first_bias[i];
      for (size_t c = 0; c < hidden; ++c) middle += double{first[i * hidden + c]} * x[c];
      for (size_t c = 0; c < hidden; ++c) {
        y[c] += second[c * intermediate + i] * GeluTanh(middle);
      }
    }
    return y;
  }

  size_t hidden, intermediate;
  std::vector<float> first, first_bias, second, second_bias;
};

TEST(TwoLayerMlpTest, TakesOtherActivations) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(1);
  const Weights weights(8, 5, random);
  const std::vector<float> x = RandomFloats(8, random);
  std::vector<double> reference(weights.second_bias.begin(), weights.second_bias.end());
  for (size_t i = 0; i < 5; ++i) {
    double middle = weights.first_bias[i];
    for (size_t c = 0; c < 8; ++c) middle += double{weights.first[i * 8 + c]} * x[c];
    middle = middle > 0 ? middle * middle : 0;
    for (size_t c = 0; c < 8; ++c) reference[c] += weights.second[c * 5 + i] * middle;
  }
  std::vector<float> y(8);
  Workspace workspace;
  weights.Pack(Activation::kReluSquared)
      .Apply({{}, {}, &workspace, &pool}, {x.data(), 1, 8, 8}, {y.data(), 1, 8, 8});
  EXPECT_TRUE(Close(y, reference, 1e-5));
}

TEST(TwoLayerMlpTest, MatchesFp64) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(2);
  for (size_t hidden : {1, 16, 33}) {
    for (size_t intermediate : {1, 17, 128}) {
      const Weights weights(hidden, intermediate, random);
      const TwoLayerMlp mlp = weights.Pack();
      TestMatrix x(3, hidden, 1, 2), y(3, hidden, 2, 1);
      x.Fill(RandomFloats(3 * hidden, random));
      std::vector<double> reference;
      for (size_t t = 0; t < 3; ++t) {
        for (double value : weights.Reference(x.view().row(t))) reference.push_back(value);
      }
      Workspace workspace;
      mlp.Apply({{}, {}, &workspace, &pool}, x.view(), y.view());
      EXPECT_TRUE(Close(y.Values(), reference, 3e-6, std::sqrt(hidden * intermediate)))
          << hidden << " " << intermediate;
      EXPECT_TRUE(y.CanariesAlive());
    }
  }
}

TEST(TwoLayerMlpTest, RowsAloneAndTogetherHaveTheSameBits) {
  std::mt19937_64 random(TestSeed());
  const TwoLayerMlp mlp = Weights(48, 160, random).Pack();
  TestMatrix x(150, 48);
  x.Fill(RandomFloats(150 * 48, random));
  std::vector<float> first;
  ForEachFusedTarget([&](const char* target) {
    for (size_t threads : {1, 3}) {
      ThreadPool pool(threads);
      Workspace workspace;
      TestMatrix together(150, 48), alone(150, 48);
      mlp.Apply({{}, {}, &workspace, &pool}, x.view(), together.view());
      for (size_t t = 0; t < 150; ++t) {
        workspace.Reset();
        mlp.Apply({{}, {}, &workspace, &pool}, x.view().Rows(t, 1), alone.view().Rows(t, 1));
      }
      if (first.empty()) first = together.Values();
      EXPECT_TRUE(SameBits(together.Values(), first)) << target << " threads " << threads;
      EXPECT_TRUE(SameBits(alone.Values(), first)) << target << " threads " << threads;
    }
  });
}

}  // namespace
}  // namespace rivulet
