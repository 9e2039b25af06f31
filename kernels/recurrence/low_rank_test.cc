// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The low-rank form of the delta rule (SolveLowRank) and its fold.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "kernels/base/test_seed.h"
#include "kernels/recurrence/delta.h"

namespace rivulet {
namespace {

// One head: a random base, a chunk of inputs, and NaN in every row that is yet to be solved.
struct Head {
  Head(const SumShape& s, size_t chunk_size, std::mt19937_64& random)
      : shape(s),
        chunk(chunk_size),
        matrix(s.matrix_elements()),
        narrow(s.matrix_elements()),
        key(2 * chunk * s.padded_key()),
        query(chunk * s.padded_key()),
        reader(chunk * s.padded_key()),
        decay(chunk * s.padded_key()),
        log_decay(chunk * s.padded_key()),
        value(2 * chunk * s.padded_value()),
        out(chunk * s.padded_value()) {
    const size_t d = s.key_dim, dp = s.padded_key(), e = s.value_dim, ep = s.padded_value();
    const double unit = 1.0 / std::sqrt(d);
    Fill(random, matrix, d, e, ep, 1.0);
    Fill(random, key, 2 * chunk, d, dp, unit);
    Fill(random, query, chunk, d, dp, unit);
    Fill(random, reader, chunk, d, dp, unit);
    Fill(random, value, chunk, e, 2 * ep, 1.0);
    std::uniform_real_distribution<float> uniform(-0.6f, 0.0f);
    for (size_t t = 0; t < chunk; ++t) {
      for (size_t i = t * dp; i < t * dp + d; ++i) {
        decay[i] = uniform(random);
        log_decay[i] = decay[i] + (t == 0 ? 0.0f : log_decay[i - dp]);
      }
    }
    for (size_t i = 0; i < matrix.size(); ++i) narrow[i] = FloatToBFloat16(matrix[i]);
    for (size_t i = 0; i < matrix.size() && s.dtype == DType::kBFloat16; ++i) {
      matrix[i] = BFloat16ToFloat(narrow[i]);
    }
    Forget();
  }
  static void Fill(std::mt19937_64& random, AlignedBuffer<float>& to, size_t rows, size_t columns,
                   size_t stride, double scale) {
    std::normal_distribution<float> normal(0.0f, static_cast<float>(scale));
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < columns; ++c) to[r * stride + c] = normal(random);
    }
  }
  void Forget() {
    const size_t ep = shape.padded_value();
    std::fill_n(out.data(), out.size(), NAN);
    for (size_t t = 0; t < chunk; ++t) std::fill_n(solved() + 2 * t * ep, ep, NAN);
  }
  float* solved() { return value.data() + shape.padded_value(); }
  SumBase base() {
    if (shape.dtype == DType::kBFloat16) return {narrow.data(), nullptr};
    return {matrix.data(), nullptr};
  }
  SumTail tail() {
    return {.key = key.data(),
            .key_stride = shape.padded_key(),
            .value = value.data(),
            .value_stride = shape.padded_value(),
            .log_decay = log_decay.data(),
            .decay_stride = shape.padded_key(),
            .chunk = chunk,
            .rows_a_token = 2};
  }
  // The tokens at places [begin, begin + count).
  void Run(size_t begin, size_t count) {
    const size_t dp = shape.padded_key(), ep = shape.padded_value();
    const auto rows = [&](const AlignedBuffer<float>& of) {
      return ConstFloatMatrix{of.data() + begin * dp, count, dp, dp};
    };
    SolveLowRank(shape, base(), tail(), {rows(query), rows(reader), rows(decay), begin, solved()},
                 {out.data() + begin * ep, count, ep, ep});
  }
  std::vector<float> Results() const {
    std::vector<float> all(out.data(), out.data() + out.size());
    all.insert(all.end(), value.data(), value.data() + value.size());
    return all;
  }

  SumShape shape;
  size_t chunk;
  AlignedBuffer<float> matrix;
  AlignedBuffer<uint16_t> narrow;
  AlignedBuffer<float> key, query, reader, decay, log_decay, value, out;
};

// The definition in fp64, token by token over the matrix.
struct Definition {
  explicit Definition(Head& h)
      : out(h.chunk * h.shape.value_dim), solved(out.size()), matrix(h.matrix.size()) {
    for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = h.matrix[i];
    for (size_t t = 0; t < h.chunk; ++t) {
      for (size_t c = 0; c < h.shape.value_dim; ++c) Step(h, t, c);
    }
  }
  void Step(const Head& h, size_t t, size_t c) {
    const size_t d = h.shape.key_dim, dp = h.shape.padded_key(), ep = h.shape.padded_value();
    const float* k = h.key.data() + 2 * t * dp;
    const float* b = k + dp;
    double u = 0, read = 0;
    for (size_t i = 0; i < d; ++i) u += h.reader[t * dp + i] * matrix[i * ep + c];
    for (size_t i = 0; i < d; ++i) {
      double& m = matrix[i * ep + c];
      m = m * std::exp(double{h.decay[t * dp + i]}) + k[i] * h.value[2 * t * ep + c] + b[i] * u;
      read += h.query[t * dp + i] * m;
    }
    solved[t * h.shape.value_dim + c] = u;
    out[t * h.shape.value_dim + c] = read;
  }
  std::vector<double> out, solved, matrix;
};

using Parameters = std::tuple<std::pair<size_t, size_t>, size_t, DType>;

class LowRankTest : public testing::TestWithParam<Parameters> {
 protected:
  Head MakeHead() {
    const auto& [dims, chunk, dtype] = GetParam();
    return Head(
        {.key_dim = dims.first, .value_dim = dims.second, .decay = Decay::kChannel, .dtype = dtype},
        chunk, random_);
  }
  std::mt19937_64 random_{TestSeed()};
};

TEST_P(LowRankTest, MatchesTheDefinition) {
  Head head = MakeHead();
  const Definition want(head);
  head.Run(0, head.chunk);
  const size_t e = head.shape.value_dim, ep = head.shape.padded_value();
  for (size_t t = 0; t < head.chunk; ++t) {
    for (size_t c = 0; c < e; ++c) {
      EXPECT_NEAR(head.out[t * ep + c], want.out[t * e + c], 1e-4) << t << "," << c;
      EXPECT_NEAR(head.solved()[2 * t * ep + c], want.solved[t * e + c], 1e-4) << t << "," << c;
    }
    for (size_t c = e; c < ep; ++c) {
      EXPECT_EQ(head.out[t * ep + c], 0.0f);
      EXPECT_EQ(head.solved()[2 * t * ep + c], 0.0f);
    }
  }
}

TEST_P(LowRankTest, TheFoldIsTheMatrixAfterTheChunk) {
  Head head = MakeHead();
  const Definition want(head);
  head.Run(0, head.chunk);
  FoldSum(head.shape, head.base(), head.base(), head.tail());
  const bool narrow = head.shape.dtype == DType::kBFloat16;
  for (size_t i = 0; i < head.matrix.size(); ++i) {
    const double got = narrow ? BFloat16ToFloat(head.narrow[i]) : head.matrix[i];
    EXPECT_NEAR(got, want.matrix[i], narrow ? 1e-4 + std::abs(want.matrix[i]) / 256 : 1e-4) << i;
  }
}

TEST_P(LowRankTest, AnyCutIntoPiecesGivesTheSameBits) {
  Head head = MakeHead();
  head.Run(0, head.chunk);
  const std::vector<float> want = head.Results();
  for (const size_t count : {1, 2, 3, 5, 7}) {
    head.Forget();
    for (size_t a = 0; a < head.chunk; a += count) head.Run(a, std::min(count, head.chunk - a));
    const std::vector<float> got = head.Results();
    EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0) << count;
  }
}

TEST_P(LowRankTest, LaterRowsAreNeverLookedAt) {
  Head head = MakeHead();
  head.Run(0, 7);
  const size_t dp = head.shape.padded_key(), ep = head.shape.padded_value();
  const std::vector<float> want(head.out.data() + 4 * ep, head.out.data() + 7 * ep);
  std::fill(head.key.data() + 14 * dp, head.key.data() + head.key.size(), NAN);
  std::fill(head.value.data() + 14 * ep, head.value.data() + head.value.size(), NAN);
  std::fill(head.log_decay.data() + 7 * dp, head.log_decay.data() + head.log_decay.size(), NAN);
  head.Run(4, 3);
  EXPECT_EQ(std::memcmp(want.data(), head.out.data() + 4 * ep, want.size() * sizeof(float)), 0);
}

// Every target with fused multiply-add must give the same bits, regardless of its vector width.
TEST_P(LowRankTest, VectorWidthDoesNotChangeBits) {
  Head head = MakeHead();
  std::vector<std::vector<float>> results;
  for (const uint32_t target : {HWY_AVX2, HWY_AVX3, HWY_NEON}) {
    hwy::SetSupportedTargetsForTest(0);
    if ((hwy::SupportedTargets() & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    if (std::string(RecurrenceTarget()) != hwy::TargetName(target)) continue;
    head.Forget();
    head.Run(0, 5);
    head.Run(5, 1);
    head.Run(6, head.chunk - 6);
    results.push_back(head.Results());
  }
  hwy::SetSupportedTargetsForTest(0);
  ASSERT_FALSE(results.empty());
  for (const auto& result : results) {
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(AllShapes, LowRankTest,
                         testing::Combine(testing::Values(std::pair<size_t, size_t>{16, 16},
                                                          std::pair<size_t, size_t>{24, 24},
                                                          std::pair<size_t, size_t>{32, 48},
                                                          std::pair<size_t, size_t>{64, 64},
                                                          std::pair<size_t, size_t>{128, 64},
                                                          std::pair<size_t, size_t>{5, 200}),
                                          testing::Values(size_t{16}, size_t{32}),
                                          testing::Values(DType::kFloat32, DType::kBFloat16)));

}  // namespace
}  // namespace rivulet
