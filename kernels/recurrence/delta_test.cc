// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/recurrence/delta.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "hwy/targets.h"
#include "kernels/base/test_seed.h"

namespace rivulet {
namespace {

// One value head: a random base, a chunk of inputs, and NaN in every row that is yet to be
// solved.
struct Head {
  Head(const SumShape& s, std::mt19937_64& random)
      : shape(s),
        matrix(s.matrix_elements()),
        narrow(s.matrix_elements()),
        key(kFoldInterval * s.padded_key()),
        query(kFoldInterval * s.padded_key()),
        value(kFoldInterval * s.padded_value()),
        solved(kFoldInterval * s.padded_value()),
        out(kFoldInterval * s.padded_value()),
        beta(kFoldInterval),
        log_decay(kFoldInterval * decay_columns()) {
    const size_t d = s.key_dim, dp = s.padded_key(), e = s.value_dim, ep = s.padded_value();
    Fill(random, matrix, d, e, ep, 1.0);
    Fill(random, key, kFoldInterval, d, dp, 1.0 / std::sqrt(d));
    Fill(random, query, kFoldInterval, d, dp, 1.0 / std::sqrt(d));
    Fill(random, value, kFoldInterval, e, ep, 1.0);
    std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
    for (size_t t = 0; t < kFoldInterval; ++t) {
      beta[t] = 2.0f * uniform(random);
      for (size_t i = 0; i < (channels() ? d : 1); ++i) {
        const size_t at = t * decay_columns() + i;
        log_decay[at] = -0.5f * uniform(random) + (t == 0 ? 0.0f : log_decay[at - decay_columns()]);
      }
    }
    for (size_t i = 0; i < matrix.size(); ++i) narrow[i] = FloatToBFloat16(matrix[i]);
    for (size_t i = 0; i < matrix.size() && s.dtype == DType::kBFloat16; ++i) {
      matrix[i] = BFloat16ToFloat(narrow[i]);
    }
    std::fill_n(solved.data(), solved.size(), NAN);
  }
  static void Fill(std::mt19937_64& random, AlignedBuffer<float>& to, size_t rows, size_t columns,
                   size_t stride, double scale) {
    std::normal_distribution<float> normal(0.0f, static_cast<float>(scale));
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < columns; ++c) to[r * stride + c] = normal(random);
    }
  }
  bool channels() const { return shape.decay == Decay::kChannel; }
  size_t decay_columns() const { return channels() ? shape.padded_key() : 1; }
  SumBase base() {
    if (shape.dtype == DType::kBFloat16) return {narrow.data(), nullptr};
    return {matrix.data(), nullptr};
  }
  SumTail tail() {
    return {.key = key.data(),
            .key_stride = shape.padded_key(),
            .value = solved.data(),
            .value_stride = shape.padded_value(),
            .log_decay = log_decay.data(),
            .decay_stride = decay_columns(),
            .chunk = kFoldInterval};
  }
  // The tokens at places [begin, begin + count).
  void Run(size_t begin, size_t count) {
    const size_t dp = shape.padded_key(), ep = shape.padded_value();
    const ConstFloatMatrix queries{query.data() + begin * dp, count, dp, dp};
    const ConstFloatMatrix values{value.data() + begin * ep, count, ep, ep};
    DeltaScores scores;
    (channels() ? ScoreDecayedDelta : ScoreDelta)(tail(), queries, begin, scores);
    SolveDelta(shape, base(), tail(),
               {queries, values, beta.data() + begin, 1, begin, solved.data()}, scores,
               {out.data() + begin * ep, count, ep, ep});
  }
  std::vector<float> Results() const {
    std::vector<float> all(out.data(), out.data() + out.size());
    all.insert(all.end(), solved.data(), solved.data() + solved.size());
    return all;
  }

  SumShape shape;
  AlignedBuffer<float> matrix;
  AlignedBuffer<uint16_t> narrow;
  AlignedBuffer<float> key, query, value, solved, out, beta, log_decay;
};

// The definition in fp64, token by token over the matrix: what the outputs, the rows u and the
// matrix after the chunk are.
struct Definition {
  explicit Definition(const Head& h)
      : out(kFoldInterval * h.shape.value_dim), solved(out.size()), matrix(h.matrix.size()) {
    for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = h.matrix[i];
    for (size_t t = 0; t < kFoldInterval; ++t) Step(h, t);
  }
  void Step(const Head& h, size_t t) {
    const size_t d = h.shape.key_dim, e = h.shape.value_dim, ep = h.shape.padded_value();
    const float* k = h.key.data() + t * h.shape.padded_key();
    const float* q = h.query.data() + t * h.shape.padded_key();
    for (size_t c = 0; c < e; ++c) {
      double predicted = 0, read = 0;
      for (size_t i = 0; i < d; ++i) predicted += k[i] * (matrix[i * ep + c] *= Alpha(h, t, i));
      const double u = h.beta[t] * (h.value[t * ep + c] - predicted);
      for (size_t i = 0; i < d; ++i) read += q[i] * (matrix[i * ep + c] += k[i] * u);
      solved[t * e + c] = u;
      out[t * e + c] = read;
    }
  }
  static double Alpha(const Head& h, size_t t, size_t channel) {
    if (h.shape.decay == Decay::kNone) return 1.0;
    const size_t at = t * h.decay_columns() + (h.channels() ? channel : 0);
    return std::exp(h.log_decay[at] - (t == 0 ? 0.0 : h.log_decay[at - h.decay_columns()]));
  }
  std::vector<double> out, solved, matrix;
};

class DeltaTest
    : public testing::TestWithParam<std::tuple<std::pair<size_t, size_t>, Decay, DType>> {
 protected:
  static SumShape Shape() {
    const auto& [dims, decay, dtype] = GetParam();
    return {.key_dim = dims.first, .value_dim = dims.second, .decay = decay, .dtype = dtype};
  }
  Head MakeHead() { return Head(Shape(), random_); }

  std::mt19937_64 random_{TestSeed()};
};

TEST_P(DeltaTest, MatchesTheDefinition) {
  Head head = MakeHead();
  const Definition want(head);
  head.Run(0, kFoldInterval);
  const size_t e = head.shape.value_dim, ep = head.shape.padded_value();
  for (size_t t = 0; t < kFoldInterval; ++t) {
    for (size_t c = 0; c < e; ++c) {
      EXPECT_NEAR(head.out[t * ep + c], want.out[t * e + c], 1e-4) << t << "," << c;
      EXPECT_NEAR(head.solved[t * ep + c], want.solved[t * e + c], 1e-4) << t << "," << c;
    }
    for (size_t c = e; c < ep; ++c) {
      EXPECT_EQ(head.out[t * ep + c], 0.0f);
      EXPECT_EQ(head.solved[t * ep + c], 0.0f);
    }
  }
}

// The tail of solved rows folds as any sum's.
TEST_P(DeltaTest, TheFoldIsTheMatrixAfterTheChunk) {
  Head head = MakeHead();
  const Definition want(head);
  head.Run(0, kFoldInterval);
  FoldSum(head.shape, head.base(), head.base(), head.tail());
  const bool narrow = head.shape.dtype == DType::kBFloat16;
  for (size_t i = 0; i < head.matrix.size(); ++i) {
    const double got = narrow ? BFloat16ToFloat(head.narrow[i]) : head.matrix[i];
    EXPECT_NEAR(got, want.matrix[i], narrow ? 1e-4 + std::abs(want.matrix[i]) / 256 : 1e-4) << i;
  }
}

TEST_P(DeltaTest, AnyCutIntoPiecesGivesTheSameBits) {
  Head head = MakeHead();
  head.Run(0, kFoldInterval);
  const std::vector<float> want = head.Results();
  for (size_t count : {1, 2, 3, 5, 7}) {
    std::fill_n(head.solved.data(), head.solved.size(), NAN);
    std::fill_n(head.out.data(), head.out.size(), NAN);
    for (size_t a = 0; a < kFoldInterval; a += count) {
      head.Run(a, std::min(count, kFoldInterval - a));
    }
    const std::vector<float> got = head.Results();
    EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0) << count;
  }
}

TEST_P(DeltaTest, LaterRowsAreNeverLookedAt) {
  Head head = MakeHead();
  head.Run(0, 7);
  const std::vector<float> want(head.out.data() + 4 * head.shape.padded_value(),
                                head.out.data() + 7 * head.shape.padded_value());
  const size_t dp = head.shape.padded_key();
  for (size_t i = 7 * dp; i < head.key.size(); ++i) head.key[i] = NAN;
  for (size_t i = 7; i < kFoldInterval; ++i) head.beta[i] = NAN;
  for (size_t i = 7 * head.decay_columns(); i < head.log_decay.size(); ++i) {
    head.log_decay[i] = NAN;
  }
  head.Run(4, 3);
  EXPECT_EQ(std::memcmp(want.data(), head.out.data() + 4 * head.shape.padded_value(),
                        want.size() * sizeof(float)),
            0);
}

// Every target with fused multiply-add must give the same bits, regardless of its vector width.
TEST_P(DeltaTest, VectorWidthDoesNotChangeBits) {
  Head head = MakeHead();
  std::vector<std::vector<float>> results;
  for (uint32_t target : {HWY_AVX2, HWY_AVX3, HWY_NEON}) {
    hwy::SetSupportedTargetsForTest(0);
    if ((hwy::SupportedTargets() & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    if (std::string(RecurrenceTarget()) != hwy::TargetName(target)) continue;
    head.Run(0, 5);
    head.Run(5, 1);
    head.Run(6, 10);
    results.push_back(head.Results());
  }
  hwy::SetSupportedTargetsForTest(0);
  ASSERT_FALSE(results.empty());
  for (const auto& result : results) {
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllShapes, DeltaTest,
    testing::Combine(
        testing::Values(std::pair<size_t, size_t>{16, 16}, std::pair<size_t, size_t>{24, 24},
                        std::pair<size_t, size_t>{32, 48}, std::pair<size_t, size_t>{64, 64},
                        std::pair<size_t, size_t>{128, 64}, std::pair<size_t, size_t>{5, 200},
                        std::pair<size_t, size_t>{256, 256}),
        testing::Values(Decay::kNone, Decay::kScalar, Decay::kChannel),
        testing::Values(DType::kFloat32, DType::kBFloat16)));

}  // namespace
}  // namespace rivulet
