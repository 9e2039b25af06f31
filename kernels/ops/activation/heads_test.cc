// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/aligned_buffer.h"
#include "kernels/base/test_support.h"
#include "kernels/ops/activation/activation.h"

namespace rivulet {
namespace {

TEST(HeadsTest, EachHeadIsActivatedScaledAndPaddedWithZeros) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(2);
  for (Activation f : {Activation::kIdentity, Activation::kSilu, Activation::kEluPlusOne}) {
    for (size_t width : {1, 7, 15, 16, 17, 31, 32, 64, 100}) {
      constexpr size_t kTokens = 5, kHeads = 3;
      const size_t padded = PaddedColumns(width);
      TestMatrix x(kTokens, kHeads * width, width % 3, 5);
      TestMatrix y(kTokens, kHeads * padded, 0, 16);
      x.Fill(RandomFloats(kTokens * kHeads * width, random));
      PadHeads(x.view(), kHeads, width, f, 0.5f, y.view(), pool);
      for (size_t t = 0; t < kTokens; ++t) {
        std::vector<float> activated(kHeads * width);
        Activate(f, x.view().row(t), activated.data(), activated.size());
        for (size_t i = 0; i < kHeads * padded; ++i) {
          const size_t h = i / padded, c = i % padded;
          const float expected = c < width ? 0.5f * activated[h * width + c] : 0.0f;
          ASSERT_EQ(Bits(y.view().row(t)[i]), Bits(expected)) << "width " << width << " at " << i;
        }
      }
      EXPECT_TRUE(y.CanariesAlive());
    }
  }
}

TEST(HeadsTest, ThreadsAndTargetsDoNotChangeBits) {
  std::mt19937_64 random(TestSeed());
  TestMatrix x(300, 4 * 60);
  x.Fill(RandomFloats(300 * 4 * 60, random));
  std::vector<float> first;
  ForEachFusedTarget([&](const char* target) {
    for (size_t threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      TestMatrix y(300, 4 * 64);
      PadHeads(x.view(), 4, 60, Activation::kSilu, 0.125f, y.view(), pool);
      if (first.empty()) first = y.Values();
      EXPECT_TRUE(SameBits(y.Values(), first)) << target << " threads " << threads;
    }
  });
}

}  // namespace
}  // namespace rivulet
