// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/recurrence/fenwick.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "kernels/base/test_seed.h"

namespace rivulet {
namespace {

using Matrix = std::vector<double>;  // [D, E]

// One head in a session of `chunks` full chunks: random pages where that has some, a full tail.
struct Head {
  Head(const FenwickShape& s, uint64_t chunks, std::mt19937_64& random)
      : shape(s),
        chunks(chunks),
        key(kFoldInterval * s.padded_key()),
        query(key.size()),
        value(kFoldInterval * s.padded_value()),
        lambda(kFoldInterval * s.levels),
        decay(kFoldInterval),
        beta(kFoldInterval),
        overlap(kFoldInterval * kFoldInterval),
        log_decay(size_t{2} * s.pages()),
        bytes(s.pages() * page_bytes()) {
    // Keys of length one, as the delta rule wants them.
    Fill(random, std::sqrt(3.0f / static_cast<float>(s.key_dim)), s.key_dim, s.padded_key(), key);
    Fill(random, 1.0f, s.key_dim, s.padded_key(), query);
    Fill(random, 1.0f, s.value_dim, s.padded_value(), value);
    Fill(random, 1.0f, s.levels, s.levels, lambda);
    std::uniform_real_distribution<float> uniform;
    for (size_t a = 0; a < kFoldInterval; ++a) {
      decay[a] = -0.3f * uniform(random) + (a == 0 ? 0.0f : decay[a - 1]);
      beta[a] = 2.0f * uniform(random);
    }
    for (uint32_t p = 0; p < s.pages(); ++p) FillPage(p, random);
    AppendOverlap(shape, tail(), 0, kFoldInterval);
  }

  static void Fill(std::mt19937_64& random, float bound, size_t columns, size_t stride,
                   AlignedBuffer<float>& to) {
    std::uniform_real_distribution<float> uniform(-bound, bound);
    for (size_t i = 0; i < to.size(); ++i) to[i] = i % stride < columns ? uniform(random) : 0.0f;
  }
  // Garbage where the session has no page.
  void FillPage(uint32_t p, std::mt19937_64& random) {
    std::memset(Page(p), 0xff, page_bytes());
    log_decay[2 * p] = log_decay[2 * p + 1] = NAN;
    if (!HasPage(chunks, p, shape.pages())) return;
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    log_decay[2 * p] = uniform(random) - 1.0f;
    log_decay[2 * p + 1] = 0.0f;
    for (size_t i = 0; i < shape.matrix_elements(); ++i) {
      Set(Page(p), i, i % shape.padded_value() < shape.value_dim ? uniform(random) : 0.0f);
    }
  }

  bool narrow() const { return shape.dtype == DType::kBFloat16; }
  size_t page_bytes() const {
    return RoundUp(shape.matrix_elements() * DTypeSize(shape.dtype), kAlignment);
  }
  std::byte* Page(uint32_t p) { return bytes.data() + p * page_bytes(); }
  void Set(std::byte* page, size_t i, float x) {
    if (narrow()) reinterpret_cast<uint16_t*>(page)[i] = FloatToBFloat16(x);
    if (!narrow()) reinterpret_cast<float*>(page)[i] = x;
  }
  float Get(const std::byte* page, size_t i) const {
    return narrow() ? BFloat16ToFloat(reinterpret_cast<const uint16_t*>(page)[i])
                    : reinterpret_cast<const float*>(page)[i];
  }
  Matrix Exact(uint32_t p) {
    Matrix m;
    for (size_t i = 0; i < shape.key_dim * shape.value_dim; ++i) {
      m.push_back(Get(Page(p), i / shape.value_dim * shape.padded_value() + i % shape.value_dim));
    }
    return m;
  }
  FenwickPages pages() {
    FenwickPages all;
    for (uint32_t p = 0; p < shape.pages(); ++p) {
      all.matrix[p] = HasPage(chunks, p, shape.pages()) ? Page(p) : nullptr;
    }
    all.log_decay = log_decay.data();
    return all;
  }
  FenwickTail tail() {
    const SumTail rows{.key = key.data(),
                       .key_stride = shape.padded_key(),
                       .value = value.data(),
                       .value_stride = shape.padded_value(),
                       .log_decay = decay.data(),
                       .decay_stride = 1};
    return {rows, beta.data(), overlap.data()};
  }
  // Log decay of token a alone.
  double Gate(size_t a) const { return double{decay[a]} - (a == 0 ? 0.0 : double{decay[a - 1]}); }

  FenwickShape shape;
  uint64_t chunks;
  AlignedBuffer<float> key, query, value, lambda, decay, beta, overlap, log_decay;
  AlignedBuffer<std::byte> bytes;
};

// The definition, in fp64: the query walks back over the chunk's tokens, and what is left of it
// reads the pages.
std::vector<double> ReferenceRead(Head& head, size_t place) {
  const FenwickShape& s = head.shape;
  const float* lambda = head.lambda.data() + place * s.levels;
  const float* query = head.query.data() + place * s.padded_key();
  std::vector<double> q(query, query + s.key_dim), out(s.value_dim, 0.0);
  for (size_t token = place + 1; token-- > 0;) {
    const float* k = head.key.data() + token * s.padded_key();
    const double beta = s.delta ? head.beta[token] : 1.0, gate = std::exp(head.Gate(token));
    double score = 0;
    for (size_t i = 0; i < s.key_dim; ++i) score += q[i] * k[i];
    const double weight =
        lambda[std::min<size_t>(std::bit_width(place ^ token), s.levels - 1)] * score * beta;
    for (size_t j = 0; j < s.value_dim; ++j) {
      out[j] += weight * head.value[token * s.padded_value() + j];
    }
    for (size_t i = 0; i < s.key_dim; ++i) {
      q[i] = gate * (q[i] - (s.delta ? beta * score * k[i] : 0.0));
    }
  }
  for (uint32_t p = 0; p < s.pages(); ++p) {
    if (!HasPage(head.chunks, p, s.pages())) continue;
    const Matrix m = head.Exact(p);
    const double weight = lambda[std::min(p + 5, s.levels - 1)] * std::exp(head.log_decay[2 * p]);
    for (size_t i = 0; i < m.size(); ++i) {
      out[i % s.value_dim] += weight * q[i / s.value_dim] * m[i];
    }
  }
  return out;
}

// One token of the chunk: its transition and, for the page that holds it, its write.
void ReferenceStep(const Head& head, size_t token, bool write, Matrix& m) {
  const FenwickShape& s = head.shape;
  const float* k = head.key.data() + token * s.padded_key();
  const double beta = s.delta ? head.beta[token] : 1.0, gate = std::exp(head.Gate(token));
  for (size_t j = 0; j < s.value_dim; ++j) {
    double read = 0;
    for (size_t i = 0; i < s.key_dim; ++i) read += k[i] * m[i * s.value_dim + j];
    const double value = write ? beta * head.value[token * s.padded_value() + j] : 0.0;
    for (size_t i = 0; i < s.key_dim; ++i) {
      double& x = m[i * s.value_dim + j];
      x = gate * (x - (s.delta ? beta * read * k[i] : 0.0)) + k[i] * value;
    }
  }
}

// Page p after the fold, its decay applied.
Matrix ReferenceFold(Head& head, uint32_t p) {
  const FenwickShape& s = head.shape;
  const uint32_t made = CarryPage(head.chunks, s.pages());
  Matrix m(s.key_dim * s.value_dim, 0.0);
  for (uint32_t from = p == made ? 0 : p; from <= p; ++from) {
    if (!HasPage(head.chunks, from, s.pages())) continue;
    const Matrix old = head.Exact(from);
    for (size_t i = 0; i < m.size(); ++i) m[i] += std::exp(head.log_decay[2 * from]) * old[i];
  }
  for (size_t token = 0; token < kFoldInterval; ++token) ReferenceStep(head, token, p == made, m);
  return m;
}

struct Output {
  explicit Output(const FenwickShape& shape)
      : values(kFoldInterval * shape.padded_value()),
        view{values.data(), kFoldInterval, shape.padded_value(), shape.padded_value()} {}
  AlignedBuffer<float> values;
  FloatMatrix view;
};

void Read(Head& head, size_t begin, size_t count, Output& out) {
  const size_t dp = head.shape.padded_key(), levels = head.shape.levels;
  const ConstFloatMatrix queries{head.query.data() + begin * dp, count, dp, dp};
  const ConstFloatMatrix lambda{head.lambda.data() + begin * levels, count, levels, levels};
  ReadFenwick(head.shape, head.pages(), head.tail(), {queries, lambda, begin},
              out.view.Rows(begin, count));
}

// The pages after a fold: those that live on in place or in slots of their own.
struct Folded {
  Folded(Head& head, bool in_place)
      : chunks(head.chunks + 1),
        bytes(size_t{2} * head.bytes.size()),
        log_decay(size_t{2} * head.shape.pages()) {
    const uint32_t made = CarryPage(head.chunks, head.shape.pages());
    const bool moves = head.shape.delta && !in_place;
    for (uint32_t p = 0; p < head.shape.pages(); ++p) {
      pages.matrix[p] = nullptr;
      if (!HasPage(chunks, p, head.shape.pages())) continue;
      pages.matrix[p] = p == made || moves ? bytes.data() + p * head.page_bytes() : head.Page(p);
    }
    pages.log_decay = in_place ? head.log_decay.data() : log_decay.data();
    FoldFenwick(head.shape, head.chunks, head.pages(), pages, head.tail());
  }
  uint64_t chunks;
  AlignedBuffer<std::byte> bytes;
  AlignedBuffer<float> log_decay;
  FenwickPages pages;
};

using Case = std::tuple<std::pair<size_t, size_t>, uint32_t, bool, DType>;

class FenwickTest : public testing::TestWithParam<Case> {
 protected:
  FenwickShape Shape() const {
    const auto& [dims, levels, delta, dtype] = GetParam();
    return {dims.first, dims.second, levels, delta, dtype, kFoldInterval};
  }
  // Chunks with no pages, one, several, and more than the levels hold.
  static constexpr uint64_t kChunks[] = {0, 1, 2, 5, 6, 7, 11, 63};
};

TEST_P(FenwickTest, ReadMatchesTheDefinition) {
  std::mt19937_64 random(TestSeed());
  for (const uint64_t chunks : kChunks) {
    Head head(Shape(), chunks, random);
    Output out(head.shape);
    Read(head, 0, kFoldInterval, out);
    for (size_t a = 0; a < kFoldInterval; ++a) {
      const std::vector<double> expected = ReferenceRead(head, a);
      for (size_t j = 0; j < head.shape.padded_value(); ++j) {
        const double want = j < head.shape.value_dim ? expected[j] : 0.0;
        EXPECT_NEAR(out.view.row(a)[j], want, 2e-4) << chunks << " chunks, " << a << "," << j;
      }
    }
  }
}

TEST_P(FenwickTest, FoldMatchesTheDefinition) {
  std::mt19937_64 random(TestSeed());
  for (const uint64_t chunks : kChunks) {
    Head head(Shape(), chunks, random);
    Folded folded(head, false);
    for (uint32_t p = 0; p < head.shape.pages(); ++p) {
      EXPECT_TRUE(std::isfinite(folded.log_decay[2 * p]));
      if (folded.pages.matrix[p] == nullptr) continue;
      const Matrix expected = ReferenceFold(head, p);
      const double decay = std::exp(double{folded.log_decay[2 * p]});
      for (size_t i = 0; i < expected.size(); ++i) {
        const size_t at =
            i / head.shape.value_dim * head.shape.padded_value() + i % head.shape.value_dim;
        const double got = decay * head.Get(folded.pages.matrix[p], at);
        const double tolerance = head.narrow() ? 1e-4 + std::abs(expected[i]) / 256 : 1e-4;
        EXPECT_NEAR(got, expected[i], tolerance) << chunks << " chunks, page " << p << ", " << i;
      }
    }
  }
}

TEST_P(FenwickTest, OneQueryAtATimeGivesTheBitsOfMany) {
  std::mt19937_64 random(TestSeed());
  for (const uint64_t chunks : kChunks) {
    Head head(Shape(), chunks, random);
    Output together(head.shape);
    Read(head, 0, kFoldInterval, together);
    for (const size_t count : {1, 2, 3, 5, 7}) {
      Output pieces(head.shape);
      for (size_t a = 0; a < kFoldInterval; a += count) {
        Read(head, a, std::min(count, kFoldInterval - a), pieces);
      }
      EXPECT_EQ(std::memcmp(together.values.data(), pieces.values.data(),
                            together.values.size() * sizeof(float)),
                0)
          << chunks << " chunks, " << count << " at a time";
    }
  }
}

TEST_P(FenwickTest, RowsAfterTheQueryAreNeverLookedAt) {
  std::mt19937_64 random(TestSeed());
  Head head(Shape(), 5, random);
  Output before(head.shape), after(head.shape);
  Read(head, 4, 3, before);
  for (AlignedBuffer<float>* rows :
       {&head.key, &head.value, &head.decay, &head.beta, &head.overlap}) {
    for (size_t i = rows->size() / kFoldInterval * 7; i < rows->size(); ++i) (*rows)[i] = NAN;
  }
  Read(head, 4, 3, after);
  EXPECT_EQ(
      std::memcmp(before.values.data(), after.values.data(), before.values.size() * sizeof(float)),
      0);
}

TEST_P(FenwickTest, FoldInPlaceGivesTheBitsOfFoldElsewhere) {
  std::mt19937_64 random(TestSeed());
  for (const uint64_t chunks : kChunks) {
    Head head(Shape(), chunks, random);
    const Folded elsewhere(head, false), in_place(head, true);
    for (uint32_t p = 0; p < head.shape.pages(); ++p) {
      ASSERT_EQ(elsewhere.pages.matrix[p] == nullptr, in_place.pages.matrix[p] == nullptr);
      if (elsewhere.pages.matrix[p] == nullptr) continue;
      EXPECT_EQ(std::memcmp(elsewhere.pages.matrix[p], in_place.pages.matrix[p],
                            head.shape.matrix_elements() * DTypeSize(head.shape.dtype)),
                0)
          << chunks << " chunks, page " << p;
    }
    EXPECT_EQ(std::memcmp(elsewhere.log_decay.data(), in_place.pages.log_decay,
                          elsewhere.log_decay.size() * sizeof(float)),
              0);
  }
}

// Every target with fused multiply-add must give the same bits, regardless of its vector width.
TEST_P(FenwickTest, VectorWidthDoesNotChangeBits) {
  std::mt19937_64 random(TestSeed());
  Head head(Shape(), 7, random);
  std::vector<std::vector<float>> results;
  for (const uint32_t target : {HWY_AVX2, HWY_AVX3, HWY_NEON}) {
    hwy::SetSupportedTargetsForTest(0);
    if ((hwy::SupportedTargets() & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    if (std::string(RecurrenceTarget()) != hwy::TargetName(target)) continue;
    AppendOverlap(head.shape, head.tail(), 0, kFoldInterval);
    Output out(head.shape);
    Read(head, 0, kFoldInterval, out);
    const Folded folded(head, false);
    std::vector<float>& all =
        results.emplace_back(out.values.data(), out.values.data() + out.values.size());
    for (uint32_t p = 0; p < head.shape.pages(); ++p) {
      if (folded.pages.matrix[p] == nullptr) continue;
      for (size_t i = 0; i < head.shape.matrix_elements(); ++i) {
        all.push_back(head.Get(folded.pages.matrix[p], i));
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  ASSERT_FALSE(results.empty());
  for (const auto& result : results) {
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(AllShapes, FenwickTest,
                         testing::Combine(testing::Values(std::pair<size_t, size_t>{16, 16},
                                                          std::pair<size_t, size_t>{24, 40},
                                                          std::pair<size_t, size_t>{64, 64},
                                                          std::pair<size_t, size_t>{5, 200},
                                                          std::pair<size_t, size_t>{256, 32}),
                                          testing::Values(1u, 4u, 7u, 15u), testing::Bool(),
                                          testing::Values(DType::kFloat32, DType::kBFloat16)));

// A decay that a million tokens add up to: exact to a few units in the last place, where one float
// would have lost its lower half.
TEST(Fenwick, DecaysAddUpExactly) {
  std::mt19937_64 random(1);
  Head head({4, 4, 64, false, DType::kFloat32, kFoldInterval}, uint64_t{1} << 40, random);
  head.log_decay[80] = head.log_decay[81] = 0.0f;
  double exact = 0;
  const float step = head.decay[kFoldInterval - 1] = -1.1e-4f;
  for (int fold = 0; fold < 1 << 16; ++fold) {
    Folded folded(head, true);
    exact += step;
  }
  EXPECT_NEAR(double{head.log_decay[80]} + double{head.log_decay[81]}, exact, 1e-9);
}

TEST(Fenwick, LevelsSayWhereAPageIsRead) {
  EXPECT_EQ(FenwickPageCount(15, 16), 10u);
  EXPECT_EQ(FenwickPageCount(6, 16), 1u);
  EXPECT_EQ(FenwickPageCount(5, 16), 1u);
  EXPECT_EQ(FenwickPageCount(1, 16), 1u);
  EXPECT_EQ(FenwickPageLevel(0, 15, 16), 5u);
  EXPECT_EQ(FenwickPageLevel(9, 15, 16), 14u);
  EXPECT_EQ(FenwickPageLevel(0, 3, 16), 2u);
  EXPECT_EQ(FenwickCapacity(15), 16384u);
  // A page is read at the level of each of its tokens.
  for (uint64_t t = 0; t < 4096; ++t) {
    uint64_t end = t / kFoldInterval;  // pages, from the newest, end at this chunk
    for (uint32_t p = 0; p < FenwickPageCount(15, 16); ++p) {
      if (!HasPage(t / kFoldInterval, p, FenwickPageCount(15, 16))) continue;
      for (const uint64_t s :
           {(end - (uint64_t{1} << p)) * kFoldInterval, end * kFoldInterval - 1}) {
        EXPECT_EQ(static_cast<uint32_t>(std::bit_width(t ^ s)), FenwickPageLevel(p, 15, 16));
      }
      end -= uint64_t{1} << p;
    }
  }
}

}  // namespace
}  // namespace rivulet
