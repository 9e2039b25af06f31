// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/token_shift/token_shift.h"

#include "kernels/base/test_support.h"

namespace rivulet {
namespace {

// One session's slots; garbage where nothing may be read.
struct Slots {
  explicit Slots(const StateLayout& layout)
      : base(layout.base_bytes() / sizeof(float)), tail(layout.tail_bytes() / sizeof(float)) {
    std::fill_n(base.data(), base.size(), NAN);
    std::fill_n(tail.data(), tail.size(), NAN);
  }
  LayerState state() {
    return {reinterpret_cast<std::byte*>(base.data()), base.size() * sizeof(float),
            reinterpret_cast<std::byte*>(tail.data()), tail.size() * sizeof(float)};
  }
  AlignedBuffer<float> base, tail;
};

// The mixture of all rows of x, cut into steps of these lengths.
std::vector<float> Mixed(const TestMatrix& x, std::span<const float> mix,
                         std::span<const size_t> cuts, ThreadPool& pool) {
  StateLayout layout;
  const TokenShift shift(mix.size(), layout);
  Slots slots(layout);
  TestMatrix y(x.view().rows, mix.size(), 2, 1);
  Workspace workspace;
  size_t done = 0;
  for (const size_t cut : cuts) {
    workspace.Reset();
    const Segment segment{.tokens = cut, .position = done};
    const ConstFloatMatrix rows = x.view().Rows(done, cut);
    const FloatMatrix difference =
        shift.Difference({std::span(&segment, 1), slots.state(), &workspace, &pool}, rows);
    MixShifted(rows, difference, mix.data(), y.view().Rows(done, cut), pool);
    done += cut;
  }
  EXPECT_TRUE(y.CanariesAlive());
  return y.Values();
}

TEST(TokenShiftTest, MixesEachTokenWithTheOneBefore) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(2);
  for (const size_t channels : {1, 16, 37}) {
    const std::vector<float> mix = RandomFloats(channels, random);
    TestMatrix x(40, channels, 1, 2);
    x.Fill(RandomFloats(40 * channels, random));
    std::vector<double> reference;
    for (size_t t = 0; t < 40; ++t) {
      for (size_t i = 0; i < channels; ++i) {
        const double own = x.view().row(t)[i], before = t == 0 ? 0.0 : x.view().row(t - 1)[i];
        reference.push_back(own + (before - own) * mix[i]);
      }
    }
    const size_t whole[] = {40};
    EXPECT_TRUE(Close(Mixed(x, mix, whole, pool), reference, 1e-6)) << channels;
  }
}

TEST(TokenShiftTest, AnyCutGivesTheSameBits) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(1);
  const std::vector<float> mix = RandomFloats(24, random);
  TestMatrix x(40, 24);
  x.Fill(RandomFloats(40 * 24, random));
  const size_t whole[] = {40}, cut[] = {1, 15, 1, 3, 12, 7, 1};
  EXPECT_TRUE(SameBits(Mixed(x, mix, whole, pool), Mixed(x, mix, cut, pool)));
}

}  // namespace
}  // namespace rivulet
