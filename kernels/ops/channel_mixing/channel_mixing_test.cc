// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Its bits in company are the mixer suite's to check (kernels/mixers/rwkv7/rwkv7_test.cc).
#include "kernels/ops/channel_mixing/channel_mixing.h"

#include "kernels/base/test_support.h"

namespace rivulet {
namespace {

struct Weights {
  Weights(size_t hidden_size, size_t intermediate_size, std::mt19937_64& random)
      : hidden(hidden_size),
        intermediate(intermediate_size),
        mix(RandomFloats(hidden, random)),
        key(RandomFloats(intermediate * hidden, random)),
        value(RandomFloats(hidden * intermediate, random)),
        gate_mix(RandomFloats(hidden, random)),
        receptance(RandomFloats(hidden * hidden, random)) {}

  ChannelMixing Pack(Activation f, bool gated) const {
    const DType fp32 = DType::kFloat32;
    const auto buffer = [](const std::vector<float>& numbers) {
      AlignedBuffer<float> own(numbers.size());
      std::copy(numbers.begin(), numbers.end(), own.data());
      return own;
    };
    std::optional<ChannelMixing::Gate> gate;
    if (gated) {
      gate = {buffer(gate_mix), Linear::Pack({{receptance.data(), fp32, hidden}}, hidden, fp32)};
    }
    return {buffer(mix),
            Linear::Pack({{key.data(), fp32, intermediate}}, hidden, fp32),
            Linear::Pack({{value.data(), fp32, hidden}}, intermediate, fp32),
            std::move(gate),
            f,
            StateLayout()};
  }

  // Input c of token t, mixed with the one before.
  static double Mixed(const FloatMatrix& x, size_t t, size_t c, float share) {
    const double own = x.row(t)[c], before = t == 0 ? 0.0 : x.row(t - 1)[c];
    return own + (before - own) * share;
  }

  double GateOf(const FloatMatrix& x, size_t t, size_t output) const {
    double sum = 0;
    for (size_t c = 0; c < hidden; ++c) {
      sum += double{receptance[output * hidden + c]} * Mixed(x, t, c, gate_mix[c]);
    }
    return 1 / (1 + std::exp(-sum));
  }

  // f = max(·, 0)².
  std::vector<double> Reference(const FloatMatrix& x, bool gated) const {
    std::vector<double> y(x.rows * hidden);
    for (size_t t = 0; t < x.rows; ++t) {
      for (size_t i = 0; i < intermediate; ++i) {
        double middle = 0;
        for (size_t c = 0; c < hidden; ++c) {
          middle += double{key[i * hidden + c]} * Mixed(x, t, c, mix[c]);
        }
        middle = middle > 0 ? middle * middle : 0;
        for (size_t c = 0; c < hidden; ++c) {
          y[t * hidden + c] += value[c * intermediate + i] * middle;
        }
      }
      for (size_t c = 0; gated && c < hidden; ++c) y[t * hidden + c] *= GateOf(x, t, c);
    }
    return y;
  }

  size_t hidden, intermediate;
  std::vector<float> mix, key, value, gate_mix, receptance;
};

// A prompt of 20 tokens, then 20 tokens one at a time.
std::vector<float> Outputs(const ChannelMixing& block, const TestMatrix& x, ThreadPool& pool) {
  const StateLayout& layout = *block.state_layout();
  AlignedBuffer<float> base(layout.base_bytes() / sizeof(float)),
      tail(layout.tail_bytes() / sizeof(float));
  std::fill_n(base.data(), base.size(), NAN);
  std::fill_n(tail.data(), tail.size(), NAN);
  TestMatrix y(40, x.view().columns, 1, 1);
  Workspace workspace;
  for (size_t done = 0; done < 40;) {
    const size_t tokens = done == 0 ? 20 : 1;
    workspace.Reset();
    const Segment segment{.tokens = tokens, .position = done};
    const LayerState state{reinterpret_cast<std::byte*>(base.data()), layout.base_bytes(),
                           reinterpret_cast<std::byte*>(tail.data()), layout.tail_bytes()};
    block.Apply({std::span(&segment, 1), state, &workspace, &pool}, x.view().Rows(done, tokens),
                y.view().Rows(done, tokens));
    done += tokens;
  }
  EXPECT_TRUE(y.CanariesAlive());
  return y.Values();
}

TEST(ChannelMixingTest, MatchesFp64) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(2);
  for (const size_t hidden : {16, 33}) {
    for (const size_t intermediate : {1, 70}) {
      const Weights weights(hidden, intermediate, random);
      TestMatrix x(40, hidden, 1, 2);
      x.Fill(RandomFloats(40 * hidden, random));
      for (const bool gated : {false, true}) {
        const ChannelMixing block = weights.Pack(Activation::kReluSquared, gated);
        EXPECT_TRUE(Close(Outputs(block, x, pool), weights.Reference(x.view(), gated), 1e-5))
            << hidden << " " << intermediate << " " << gated;
        EXPECT_TRUE(block.runs_on_device());
      }
    }
  }
}

}  // namespace
}  // namespace rivulet
