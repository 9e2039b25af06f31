// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/gated_mlp/gated_mlp.h"

#include "kernels/base/test_support.h"
#include "kernels/device/device_buffers.h"
#include "kernels/device/device_step.h"
#include "kernels/device/fake_device.h"

namespace rivulet {
namespace {

struct Weights {
  Weights(size_t hidden_size, size_t intermediate_size, std::mt19937_64& random)
      : hidden(hidden_size),
        intermediate(intermediate_size),
        gate(RandomFloats(intermediate * hidden, random)),
        up(RandomFloats(intermediate * hidden, random)),
        down(RandomFloats(hidden * intermediate, random)) {}

  GatedMlp Pack() const {
    const DType fp32 = DType::kFloat32;
    return {Linear::Pack({{gate.data(), fp32, intermediate, nullptr},
                          {up.data(), fp32, intermediate, nullptr}},
                         hidden, fp32),
            Linear::Pack({{down.data(), fp32, hidden, nullptr}}, intermediate, fp32)};
  }

  std::vector<double> Reference(const float* x) const {
    std::vector<double> y(hidden);
    for (size_t i = 0; i < intermediate; ++i) {
      double g = 0, u = 0;
      for (size_t c = 0; c < hidden; ++c) {
        g += double{gate[i * hidden + c]} * x[c];
        u += double{up[i * hidden + c]} * x[c];
      }
      const double middle = g / (1 + std::exp(-g)) * u;
      for (size_t c = 0; c < hidden; ++c) y[c] += down[c * intermediate + i] * middle;
    }
    return y;
  }

  size_t hidden, intermediate;
  std::vector<float> gate, up, down;
};

TEST(GatedMlpTest, MatchesFp64) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(2);
  for (size_t hidden : {1, 16, 33, 64}) {
    for (size_t intermediate : {1, 17, 128, 300}) {
      const Weights weights(hidden, intermediate, random);
      const GatedMlp mlp = weights.Pack();
      TestMatrix x(3, hidden, 1, 2), y(3, hidden, 2, 1);
      x.Fill(RandomFloats(3 * hidden, random));
      std::vector<double> reference;
      for (size_t t = 0; t < 3; ++t) {
        for (double value : weights.Reference(x.view().row(t))) reference.push_back(value);
      }
      Workspace workspace;
      mlp.Apply({{}, {}, &workspace, &pool}, x.view(), y.view());
      const double typical = static_cast<double>(hidden) * std::sqrt(intermediate);
      EXPECT_TRUE(Close(y.Values(), reference, 3e-6, typical)) << hidden << " " << intermediate;
      EXPECT_TRUE(y.CanariesAlive());
    }
  }
}

TEST(GatedMlpTest, OtherActivationsAndMultipliers) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(2);
  const Weights weights(32, 40, random);
  const std::vector<float> x = RandomFloats(32, random);
  const GatedMlp plain = weights.Pack();
  const GatedMlpForm form{
      .f = Activation::kRelu, .gate_multiplier = -0.5f, .output_multiplier = 3.0f};
  const GatedMlp other(Linear(plain.gate_up()), Linear(plain.down()), form);
  std::vector<double> reference(32);
  for (size_t i = 0; i < 40; ++i) {
    double g = 0, u = 0;
    for (size_t c = 0; c < 32; ++c) {
      g += double{weights.gate[i * 32 + c]} * x[c];
      u += double{weights.up[i * 32 + c]} * x[c];
    }
    const double middle = std::max(-0.5 * g, 0.0) * u;
    for (size_t c = 0; c < 32; ++c) reference[c] += 3 * weights.down[c * 40 + i] * middle;
  }
  std::vector<float> y(32);
  Workspace workspace;
  other.Apply({{}, {}, &workspace, &pool}, {x.data(), 1, 32, 32}, {y.data(), 1, 32, 32});
  EXPECT_TRUE(Close(y, reference, 1e-5));
}

TEST(GatedMlpTest, ClampsGateAboveAndUpOnBothSides) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(1);
  const Weights weights(32, 40, random);
  const std::vector<float> x = RandomFloats(32, random);
  const GatedMlp plain = weights.Pack();
  const GatedMlp clamped(Linear(plain.gate_up()), Linear(plain.down()), {.limit = 2});
  std::vector<double> reference(32);
  size_t above = 0, below = 0;
  for (size_t i = 0; i < 40; ++i) {
    double g = 0, u = 0;
    for (size_t c = 0; c < 32; ++c) {
      g += double{weights.gate[i * 32 + c]} * x[c];
      u += double{weights.up[i * 32 + c]} * x[c];
    }
    above += g > 2 || u > 2 ? 1 : 0;
    below += g < -2 && std::abs(u) > 2 ? 1 : 0;
    g = std::min(g, 2.0);
    const double middle = g / (1 + std::exp(-g)) * std::clamp(u, -2.0, 2.0);
    for (size_t c = 0; c < 32; ++c) reference[c] += weights.down[c * 40 + i] * middle;
  }
  EXPECT_GT(above, 0u);
  EXPECT_GT(below, 0u);
  std::vector<float> y(32);
  Workspace workspace;
  clamped.Apply({{}, {}, &workspace, &pool}, {x.data(), 1, 32, 32}, {y.data(), 1, 32, 32});
  EXPECT_TRUE(Close(y, reference, 1e-5));
}

// Also with biases, behind which the output's multiplier comes.
TEST(GatedMlpTest, EveryFormOnADeviceIsThatOfTheCpu) {
  constexpr size_t kHidden = 20, kWidth = 33, kTokens = 5;
  constexpr DType kFp32 = DType::kFloat32;
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(1);
  const Weights weights(kHidden, kWidth, random);
  const std::vector<float> biases = RandomFloats(kWidth, random);
  const std::vector<float> x = RandomFloats(kTokens * kHidden, random);
  FakeDevice device;
  std::vector<DeviceSegment> segments(kTokens);
  for (uint32_t t = 0; t < kTokens; ++t) segments[t].first_token = t, segments[t].tokens = 1;
  const DeviceRows rows{segments.data(), nullptr, kTokens, kTokens, true};
  for (const bool biased : {false, true}) {
    const float* const bias = biased ? biases.data() : nullptr;
    const std::vector<LinearSource> gate_up = {{weights.gate.data(), kFp32, kWidth, bias},
                                               {weights.up.data(), kFp32, kWidth, bias}};
    const std::vector<LinearSource> down = {{weights.down.data(), kFp32, kHidden, bias}};
    for (const GatedMlpForm& form : {GatedMlpForm{},
                                     {Activation::kGeluTanh, 1, 1},
                                     {Activation::kSilu, 0.3f, 1},
                                     {Activation::kSilu, 1, 0.7f},
                                     {Activation::kRelu, -0.5f, 3},
                                     {Activation::kSilu, 1, 1, 0.4f}}) {
      const GatedMlp cpu(Linear::Pack(gate_up, kHidden, kFp32), Linear::Pack(down, kWidth, kFp32),
                         form);
      const GatedMlp mlp(Linear::OnDevice(*device.Pack(gate_up, kHidden), kFp32),
                         Linear::OnDevice(*device.Pack(down, kWidth), kFp32), form);
      ASSERT_TRUE(mlp.runs_on_device());
      Workspace workspace;
      std::vector<float> expected(x.size());
      cpu.Apply({{}, {}, &workspace, &pool}, {x.data(), kTokens, kHidden, kHidden},
                {expected.data(), kTokens, kHidden, kHidden});
      DeviceWorkspace temporaries(&device);
      const FloatMatrix y = temporaries.Take(kTokens, kHidden);
      mlp.Enqueue({&device, &temporaries, rows, {}}, OperandOf(device, x, kTokens, kHidden), y);
      const std::vector<double> reference(expected.begin(), expected.end());
      EXPECT_TRUE(Close(NumbersOf(device, y), reference, 1e-4))
          << biased << " " << static_cast<int>(form.f) << " " << form.output_multiplier << " "
          << form.limit;
    }
  }
}

TEST(GatedMlpTest, RowsAloneAndTogetherHaveTheSameBits) {
  std::mt19937_64 random(TestSeed());
  const Weights weights(48, 160, random);
  const GatedMlp mlp = weights.Pack();
  TestMatrix x(150, 48);
  x.Fill(RandomFloats(150 * 48, random));
  std::vector<float> first;
  ForEachFusedTarget([&](const char* target) {
    for (size_t threads : {1, 2, 3}) {
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
