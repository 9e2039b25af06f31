// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/recurrence/recurrence.h"

#include <gtest/gtest.h>

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

// One head's rows and base, random, with garbage where nothing may be read.
struct Head {
  Head(const SumShape& s, float decay_power, std::mt19937_64& random) : shape(s) {
    const size_t dp = s.padded_key(), ep = s.padded_value();
    key = AlignedBuffer<float>(kFoldInterval * dp);
    value = AlignedBuffer<float>(kFoldInterval * ep);
    extra = AlignedBuffer<float>(kFoldInterval);
    query = AlignedBuffer<float>(kFoldInterval * dp);
    decay = AlignedBuffer<float>(kFoldInterval * dp);
    matrix = AlignedBuffer<float>(s.key_dim * ep);
    narrow = AlignedBuffer<uint16_t>(s.key_dim * ep);
    normaliser = AlignedBuffer<float>(dp);
    std::normal_distribution<float> normal;
    const auto fill = [&](AlignedBuffer<float>& to, size_t rows, size_t columns, size_t stride) {
      for (size_t r = 0; r < rows; ++r) {
        for (size_t c = 0; c < columns; ++c) to[r * stride + c] = normal(random);
      }
    };
    fill(key, kFoldInterval, s.key_dim, dp);
    fill(query, kFoldInterval, s.key_dim, dp);
    fill(value, kFoldInterval, s.value_dim, ep);
    fill(extra, 1, kFoldInterval, kFoldInterval);
    fill(matrix, s.key_dim, s.value_dim, ep);
    fill(normaliser, 1, s.key_dim, dp);
    for (size_t i = 0; i < matrix.size() && i < narrow.size(); ++i) {
      narrow[i] = FloatToBFloat16(matrix[i]);
      if (s.dtype == DType::kBFloat16) matrix[i] = BFloat16ToFloat(narrow[i]);
    }
    FillDecay(random);
    tail = {.key = key.data(),
            .key_stride = dp,
            .value = value.data(),
            .value_stride = ep,
            .extra = extra.data(),
            .extra_stride = 1,
            .log_decay = decay.data(),
            .decay_stride = s.decay == Decay::kScalar ? 1 : dp,
            .decay_power = decay_power,
            .chunk = kFoldInterval};
  }
  void FillDecay(std::mt19937_64& random) {
    std::uniform_real_distribution<float> uniform(-0.5f, 0.0f);
    const size_t width = shape.decay == Decay::kScalar ? 1 : shape.padded_key();
    for (size_t s = 0; s < kFoldInterval; ++s) {
      for (size_t i = 0; i < width; ++i) {
        decay[s * width + i] = uniform(random) + (s == 0 ? 0.0f : decay[(s - 1) * width + i]);
      }
    }
  }
  SumBase base() {
    if (shape.dtype == DType::kBFloat16) return {narrow.data(), normaliser.data()};
    return {matrix.data(), normaliser.data()};
  }
  // c of channel i at place s; place -1 is the border.
  double C(ptrdiff_t s, size_t i) const {
    if (s < 0 || shape.decay == Decay::kNone) return 0;
    return double{decay[s * tail.decay_stride + (shape.decay == Decay::kScalar ? 0 : i)]} *
           tail.decay_power;
  }

  SumShape shape;
  AlignedBuffer<float> key, value, extra, query, decay, matrix, normaliser;
  AlignedBuffer<uint16_t> narrow;
  SumTail tail;
};

// The definition, in fp64: every pair (query, row) on its own. Column E is the normaliser.
double ReferenceRead(const Head& head, size_t place, bool strict, size_t column) {
  const SumShape& s = head.shape;
  const ptrdiff_t a = static_cast<ptrdiff_t>(place) - (strict ? 1 : 0);
  double sum = 0;
  for (size_t i = 0; i < s.key_dim; ++i) {
    const double q = head.query[place * s.padded_key() + i];
    const double m =
        column == s.value_dim ? head.normaliser[i] : head.matrix[i * s.padded_value() + column];
    sum += q * std::exp(head.C(a, i)) * m;
    for (ptrdiff_t row = 0; row <= a; ++row) {
      const double v =
          column == s.value_dim ? head.extra[row] : head.value[row * s.padded_value() + column];
      sum += q * head.key[row * s.padded_key() + i] * std::exp(head.C(a, i) - head.C(row, i)) * v;
    }
  }
  return sum;
}

double ReferenceFold(const Head& head, size_t i, size_t column) {
  const SumShape& s = head.shape;
  const ptrdiff_t end = kFoldInterval - 1;
  const double m =
      column == s.value_dim ? head.normaliser[i] : head.matrix[i * s.padded_value() + column];
  double sum = std::exp(head.C(end, i)) * m;
  for (ptrdiff_t row = 0; row <= end; ++row) {
    const double v =
        column == s.value_dim ? head.extra[row] : head.value[row * s.padded_value() + column];
    sum += head.key[row * s.padded_key() + i] * std::exp(head.C(end, i) - head.C(row, i)) * v;
  }
  return sum;
}

struct Output {
  explicit Output(const SumShape& shape, size_t rows = kFoldInterval)
      : values(rows * shape.padded_value()),
        extra(kFoldInterval),
        view{values.data(), rows, shape.padded_value(), shape.padded_value()} {}
  AlignedBuffer<float> values, extra;
  FloatMatrix view;
};

void Read(Head& head, size_t begin, size_t count, bool strict, Output& out) {
  const size_t dp = head.shape.padded_key();
  const ConstFloatMatrix queries{head.query.data() + begin * dp, count, dp, dp};
  ReadSum(head.shape, head.base(), head.tail, {queries, begin, strict}, out.view.Rows(begin, count),
          out.extra.data() + begin);
}

class RecurrenceTest
    : public testing::TestWithParam<std::tuple<std::pair<size_t, size_t>, Decay, DType>> {
 protected:
  SumShape Shape() const {
    const auto& [dims, decay, dtype] = GetParam();
    return {.key_dim = dims.first,
            .value_dim = dims.second,
            .decay = decay,
            .normaliser = true,
            .dtype = dtype};
  }
};

TEST_P(RecurrenceTest, ReadMatchesTheDefinition) {
  std::mt19937_64 random(TestSeed());
  for (float power : {1.0f, 2.0f}) {
    Head head(Shape(), power, random);
    for (bool strict : {false, true}) {
      Output out(head.shape);
      Read(head, 0, kFoldInterval, strict, out);
      for (size_t a = 0; a < kFoldInterval; ++a) {
        for (size_t column = 0; column <= head.shape.value_dim; ++column) {
          const float got = column == head.shape.value_dim ? out.extra[a] : out.view.row(a)[column];
          EXPECT_NEAR(got, ReferenceRead(head, a, strict, column), 2e-4) << a << "," << column;
        }
        for (size_t column = head.shape.value_dim; column < head.shape.padded_value(); ++column) {
          EXPECT_EQ(out.view.row(a)[column], 0.0f);
        }
      }
    }
  }
}

TEST_P(RecurrenceTest, FoldMatchesTheDefinition) {
  std::mt19937_64 random(TestSeed());
  Head head(Shape(), 2.0f, random);
  Head to(Shape(), 2.0f, random);
  FoldSum(head.shape, head.base(), to.base(), head.tail);
  const bool narrow = head.shape.dtype == DType::kBFloat16;
  for (size_t i = 0; i < head.shape.key_dim; ++i) {
    for (size_t column = 0; column < head.shape.value_dim; ++column) {
      const size_t at = i * head.shape.padded_value() + column;
      const double want = ReferenceFold(head, i, column);
      const float got = narrow ? BFloat16ToFloat(to.narrow[at]) : to.matrix[at];
      EXPECT_NEAR(got, want, narrow ? 1e-4 + std::abs(want) / 256 : 1e-4) << i << "," << column;
    }
    EXPECT_NEAR(to.normaliser[i], ReferenceFold(head, i, head.shape.value_dim), 1e-4);
  }
}

TEST_P(RecurrenceTest, OneQueryAtATimeGivesTheBitsOfMany) {
  std::mt19937_64 random(TestSeed());
  Head head(Shape(), 1.0f, random);
  for (bool strict : {false, true}) {
    Output together(head.shape);
    Read(head, 0, kFoldInterval, strict, together);
    for (size_t count : {1, 2, 3, 5, 7}) {
      Output pieces(head.shape);
      for (size_t a = 0; a < kFoldInterval; a += count) {
        Read(head, a, std::min(count, kFoldInterval - a), strict, pieces);
      }
      EXPECT_EQ(std::memcmp(together.values.data(), pieces.values.data(),
                            together.values.size() * sizeof(float)),
                0)
          << count;
      EXPECT_EQ(std::memcmp(together.extra.data(), pieces.extra.data(), 64), 0) << count;
    }
  }
}

TEST_P(RecurrenceTest, RowsAfterTheQueryAreNeverLookedAt) {
  std::mt19937_64 random(TestSeed());
  Head head(Shape(), 1.0f, random);
  Output before(head.shape), after(head.shape);
  Read(head, 4, 3, false, before);
  const size_t dp = head.shape.padded_key(), ep = head.shape.padded_value();
  for (size_t i = 7 * dp; i < head.key.size(); ++i) head.key[i] = NAN;
  for (size_t i = 7 * ep; i < kFoldInterval * ep; ++i) head.value[i] = NAN;
  for (size_t i = 7; i < kFoldInterval; ++i) head.extra[i] = NAN;
  for (size_t i = 7 * head.tail.decay_stride; i < kFoldInterval * head.tail.decay_stride; ++i) {
    head.decay[i] = NAN;
  }
  Read(head, 4, 3, false, after);
  EXPECT_EQ(
      std::memcmp(before.values.data(), after.values.data(), before.values.size() * sizeof(float)),
      0);
  EXPECT_EQ(std::memcmp(before.extra.data(), after.extra.data(), 64), 0);
}

TEST_P(RecurrenceTest, FoldInPlaceGivesTheBitsOfFoldElsewhere) {
  std::mt19937_64 random(TestSeed());
  Head head(Shape(), 1.0f, random), to(Shape(), 1.0f, random);
  FoldSum(head.shape, head.base(), to.base(), head.tail);
  FoldSum(head.shape, head.base(), head.base(), head.tail);
  const size_t bytes = head.shape.matrix_elements() * DTypeSize(head.shape.dtype);
  EXPECT_EQ(std::memcmp(head.base().matrix, to.base().matrix, bytes), 0);
  EXPECT_EQ(std::memcmp(head.normaliser.data(), to.normaliser.data(),
                        head.normaliser.size() * sizeof(float)),
            0);
}

// Every target with fused multiply-add must give the same bits, regardless of its vector width.
TEST_P(RecurrenceTest, VectorWidthDoesNotChangeBits) {
  std::mt19937_64 random(TestSeed());
  Head head(Shape(), 1.0f, random);
  std::vector<std::vector<float>> results;
  for (uint32_t target : {HWY_AVX2, HWY_AVX3, HWY_NEON}) {
    hwy::SetSupportedTargetsForTest(0);
    if ((hwy::SupportedTargets() & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    if (std::string(RecurrenceTarget()) != hwy::TargetName(target)) continue;
    Output out(head.shape);
    Head copy(Shape(), 1.0f, random);
    Read(head, 0, kFoldInterval, false, out);
    FoldSum(head.shape, head.base(), copy.base(), head.tail);
    std::vector<float>& all =
        results.emplace_back(out.values.data(), out.values.data() + out.values.size());
    all.insert(all.end(), out.extra.data(), out.extra.data() + kFoldInterval);
    for (size_t i = 0; i < copy.matrix.size(); ++i) {
      all.push_back(head.shape.dtype == DType::kBFloat16 ? copy.narrow[i] : copy.matrix[i]);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  ASSERT_FALSE(results.empty());
  for (const auto& result : results) {
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllShapes, RecurrenceTest,
    testing::Combine(
        testing::Values(std::pair<size_t, size_t>{16, 16}, std::pair<size_t, size_t>{24, 24},
                        std::pair<size_t, size_t>{32, 48}, std::pair<size_t, size_t>{64, 64},
                        std::pair<size_t, size_t>{128, 64}, std::pair<size_t, size_t>{5, 200},
                        std::pair<size_t, size_t>{256, 256}),
        testing::Values(Decay::kNone, Decay::kScalar, Decay::kChannel),
        testing::Values(DType::kFloat32, DType::kBFloat16)));

}  // namespace
}  // namespace rivulet
