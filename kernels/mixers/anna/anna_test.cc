// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_support.h"
#include "kernels/mixers/anna/anna_hash.h"
#include "kernels/mixers/anna/anna_reference.h"
#include "kernels/mixers/anna/anna_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/anna/vectors/vectors.json";

SuiteCase Core(std::string name, const AnnaShape& shape) {
  return {std::move(name), [=] { return MakeAnnaSubject(shape); }};
}

std::vector<SuiteCase> CoreCases() {
  return {
      Core("e16_one_table", {3, {1, 4, 16}}), Core("e24_strict", {2, {3, 8, 24}, false}),
      Core("e32", {2, {16, 16, 32}}), Core("e64", {4, {8, 64, 64}}),
      Core("e100_strict", {1, {5, 27, 100}, false}), Core("e128", {2, {4, 64, 128}}),
      Core("e256_strict", {1, {16, 32, 256}, false}),
      // So many buckets that the first queries find nothing but their own key, or nothing at all.
      Core("e16_sparse", {2, {2, 32, 16}}), Core("e16_sparse_strict", {2, {2, 32, 16}, false})};
}

INSTANTIATE_TEST_SUITE_P(Anna, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(Anna, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    return MakeAnnaSubject(AnnaShape{
        p.at("heads"), {p.at("tables"), p.at("buckets"), p.at("value_dim")}, p.at("include_self")});
  });
}

// --- hashing -----------------------------------------------------------------------------------

struct HashCase {
  AnnaHashShape shape;
  std::vector<float> projections;

  size_t vector_columns() const { return shape.heads * shape.key_dim; }
  size_t bucket_columns() const { return shape.heads * shape.tables; }
};

HashCase RandomHash(const AnnaHashShape& shape, std::mt19937_64& random) {
  const size_t count = shape.heads * shape.groups() * shape.group_outputs() * shape.key_dim;
  return {shape, RandomFloats(count, random)};
}

std::vector<AnnaHashShape> HashShapes() {
  constexpr HashFamily kSim = HashFamily::kSimHash, kCross = HashFamily::kCrossPolytope;
  return {{kSim, 1, 16, 1, 1},    {kSim, 3, 24, 5, 3},    {kSim, 2, 64, 16, 6},
          {kSim, 1, 128, 7, 11},  {kSim, 1, 256, 2, 23},  {kSim, 2, 2, 9, 8},
          {kCross, 2, 16, 4, 2},  {kCross, 3, 24, 3, 1},  {kCross, 1, 64, 16, 2},
          {kCross, 1, 130, 2, 1}, {kCross, 1, 256, 1, 2}, {kCross, 2, 3, 5, 4}};
}

// Buckets of queries, then of keys, of all tokens in one call.
std::vector<float> Hash(const HashCase& hash, const TestMatrix& q, const TestMatrix& k,
                        size_t threads) {
  ThreadPool pool(threads);
  TestMatrix q_buckets(q.view().rows, hash.bucket_columns()),
      k_buckets(q.view().rows, hash.bucket_columns());
  AnnaHash(hash.shape, hash.projections.data())
      .Apply(q.view(), k.view(), q_buckets.view(), k_buckets.view(), pool);
  EXPECT_TRUE(q_buckets.CanariesAlive() && k_buckets.CanariesAlive());
  std::vector<float> all = q_buckets.Values();
  const std::vector<float> keys = k_buckets.Values();
  all.insert(all.end(), keys.begin(), keys.end());
  return all;
}

// Buckets of queries and keys that are both `values`, one token.
std::vector<float> HashOne(const HashCase& hash, std::span<const float> values) {
  TestMatrix x(1, hash.vector_columns());
  x.Fill(values);
  return Hash(hash, x, x, 1);
}

TEST(AnnaHash, AgreesWithFp64AwayFromTies) {
  std::mt19937_64 random(TestSeed());
  for (const AnnaHashShape& shape : HashShapes()) {
    SCOPED_TRACE(shape.key_dim);
    constexpr size_t kTokens = 37;
    const HashCase hash = RandomHash(shape, random);
    TestMatrix q(kTokens, hash.vector_columns()), k(kTokens, hash.vector_columns());
    q.Fill(RandomFloats(kTokens * hash.vector_columns(), random));
    k.Fill(RandomFloats(kTokens * hash.vector_columns(), random));
    const std::vector<float> buckets = Hash(hash, q, k, 2);
    size_t ties = 0;
    for (size_t i = 0; i < buckets.size(); ++i) {
      const size_t table = i % shape.tables, head = i / shape.tables % shape.heads;
      const size_t token = i / hash.bucket_columns();
      const FloatMatrix x = token < kTokens ? q.view() : k.view();
      const AnnaBucket expected =
          AnnaBucketReference(shape, hash.projections.data(), head, table,
                              x.row(token % kTokens) + head * shape.key_dim);
      if (expected.margin < 1e-4) {
        ++ties;
        continue;
      }
      ASSERT_EQ(buckets[i], static_cast<float>(expected.bucket)) << "token " << token;
    }
    EXPECT_LT(ties, buckets.size() / 20 + 1);
  }
}

TEST(AnnaHash, RowsThreadsAndTargetsDoNotChangeABit) {
  std::mt19937_64 random(TestSeed());
  for (const AnnaHashShape& shape : HashShapes()) {
    SCOPED_TRACE(shape.key_dim);
    constexpr size_t kTokens = 40;
    const HashCase hash = RandomHash(shape, random);
    // Projections near zero: one more rounding, or another order, flips some of the signs.
    TestMatrix q(kTokens, hash.vector_columns(), 1, 3), k(kTokens, hash.vector_columns());
    std::vector<float> values = RandomFloats(kTokens * hash.vector_columns(), random);
    q.Fill(values);
    std::reverse(values.begin(), values.end());
    k.Fill(values);
    const std::vector<float> together = Hash(hash, q, k, 1);
    ForEachFusedTarget([&](const char* target) {
      for (size_t threads : {1, 2, 3}) {
        EXPECT_TRUE(SameBits(Hash(hash, q, k, threads), together)) << target << " " << threads;
      }
    });
    for (size_t t = 0; t < kTokens; ++t) {
      const std::vector<float> alone =
          HashOne(hash, std::span(q.view().row(t), hash.vector_columns()));
      EXPECT_TRUE(std::equal(alone.begin(), alone.begin() + hash.bucket_columns(),
                             together.begin() + t * hash.bucket_columns()))
          << "token " << t;
    }
  }
}

// Projections that would be 0 but for rounding, whose signs depend on the order of the sum.
TEST(AnnaHash, ATieIsDecidedByTheOneOrderOfTheSum) {
  std::mt19937_64 random(TestSeed());
  constexpr size_t kDim = 64, kTables = 40;
  HashCase hash{{HashFamily::kSimHash, 1, kDim, kTables, 1}, {}};
  hash.projections = RandomFloats(kTables * kDim, random);
  std::vector<float> x = RandomFloats(kDim / 2, random);
  x.insert(x.end(), x.begin(), x.end());
  for (size_t table = 0; table < kTables; ++table) {
    float* row = &hash.projections[table * kDim];
    for (size_t i = 0; i < kDim / 2; ++i) row[kDim / 2 + i] = -row[i];
  }
  const std::vector<float> buckets = HashOne(hash, x);
  for (size_t table = 0; table < kTables; ++table) {
    float sum = 0;
    for (size_t i = 0; i < kDim; ++i) {
      sum = std::fma(x[i], hash.projections[table * kDim + i], sum);
    }
    EXPECT_EQ(buckets[table], sum >= 0 ? 1.0f : 0.0f) << "query, table " << table;
    EXPECT_EQ(buckets[kTables + table], buckets[table]) << "key, table " << table;
  }
}

TEST(AnnaHash, TiesOfSimHashAreOnes) {
  const HashCase hash{{HashFamily::kSimHash, 1, 2, 2, 2}, {1, 0, 0, 1, -1, 0, 0, -1}};
  EXPECT_THAT(HashOne(hash, std::vector<float>{0.0f, 0.0f}), testing::ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(HashOne(hash, std::vector<float>{-0.0f, -0.0f}), testing::ElementsAre(3, 3, 3, 3));
  // The first hash is the lowest bit.
  EXPECT_THAT(HashOne(hash, std::vector<float>{1.0f, -1.0f}), testing::ElementsAre(1, 2, 1, 2));
}

TEST(AnnaHash, TiesOfCrossPolytopeTakeTheLowestIndexAndPlus) {
  const HashCase hash{{HashFamily::kCrossPolytope, 1, 3, 1, 1}, {1, 0, 0, 0, 1, 0, 0, 0, 1}};
  const auto bucket = [&](float a, float b, float c) {
    return HashOne(hash, std::vector<float>{a, b, c})[0];
  };
  EXPECT_EQ(bucket(0, 0, 0), 0);
  EXPECT_EQ(bucket(-0.0f, -0.0f, -0.0f), 0);
  EXPECT_EQ(bucket(0, 2, -2), 1);
  EXPECT_EQ(bucket(0, -2, 2), 1 + 3);
  EXPECT_EQ(bucket(1, 2, -3), 2 + 3);
}

TEST(AnnaHash, NoVectorLeavesTheTable) {
  std::mt19937_64 random(TestSeed());
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const AnnaHashShape& shape : HashShapes()) {
    const HashCase hash = RandomHash(shape, random);
    for (const float value : {kNan, kInfinity, -kInfinity, 3e38f}) {
      std::vector<float> x(hash.vector_columns(), value);
      for (const bool mixed : {false, true}) {
        if (mixed) x[x.size() / 2] = 1.0f;
        for (const float bucket : HashOne(hash, x)) {
          EXPECT_GE(bucket, 0.0f);
          EXPECT_LT(bucket, static_cast<float>(shape.buckets()));
        }
      }
    }
  }
}

// --- what it is for ----------------------------------------------------------------------------

std::vector<float> Rows(size_t tokens, size_t columns,
                        const std::function<float(size_t, size_t)>& value) {
  std::vector<float> rows(tokens * columns);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = value(i / columns, i % columns);
  return rows;
}

// Hashing and recurrence of one head. Rows are flat; returns [T, Ep].
std::vector<float> Attend(const HashCase& hash, size_t value_dim, bool include_self,
                          const std::vector<float>& q, const std::vector<float>& k,
                          const std::vector<float>& v) {
  const size_t tokens = q.size() / hash.shape.key_dim;
  TestMatrix queries(tokens, hash.shape.key_dim), keys(tokens, hash.shape.key_dim),
      values(tokens, value_dim), q_buckets(tokens, hash.shape.tables),
      k_buckets(tokens, hash.shape.tables), out(tokens, PaddedColumns(value_dim));
  queries.Fill(q);
  keys.Fill(k);
  values.Fill(v);
  ThreadPool pool(1);
  AnnaHash(hash.shape, hash.projections.data())
      .Apply(queries.view(), keys.view(), q_buckets.view(), k_buckets.view(), pool);
  StateLayout layout;
  const AnnaRecurrence recurrence(
      {1, {hash.shape.tables, hash.shape.buckets(), value_dim}, include_self}, layout);
  AlignedBuffer<std::byte> base(layout.base_bytes()), tail(layout.tail_bytes());
  LayerState state;
  state.bases = base.data();
  state.tails = tail.data();
  const Segment segment{.first_token = 0, .tokens = tokens};
  recurrence.Run(std::span(&segment, 1), state, {q_buckets.view(), k_buckets.view(), values.view()},
                 out.view(), pool);
  return out.Values();
}

// Match2 (docs/mixers.md#anna-tasks): is there an earlier x_j, or x_i itself, with x_i + x_j = 0
// modulo 37?
constexpr size_t kModulus = 37, kLength = 32;

std::vector<size_t> RandomResidues(std::mt19937_64& random) {
  std::vector<size_t> x(kLength);
  for (size_t& residue : x) residue = random() % kModulus;
  return x;
}

size_t Negative(size_t residue) { return (kModulus - residue) % kModulus; }

bool HasMatch(const std::vector<size_t>& x, size_t i) {
  return std::find(x.begin(), x.begin() + i + 1, Negative(x[i])) != x.begin() + i + 1;
}

struct Match2Errors {
  size_t missed = 0, invented = 0, matches = 0, tokens = 0;

  void Count(bool expected, bool found) {
    ++tokens;
    matches += expected ? 1 : 0;
    missed += expected && !found ? 1 : 0;
    invented += found && !expected ? 1 : 0;
  }
};

// Keys (cos, sin)(2π(-x)/37) and queries (cos, sin)(2πx/37), up to `noise` apart where they match.
// Values are one-hot: the output's number -x says whether that residue was found.
Match2Errors CircleMatch2(size_t tables, double noise, std::mt19937_64& random) {
  const HashCase hash = RandomHash({HashFamily::kSimHash, 1, 2, tables, 6}, random);
  std::uniform_real_distribution<double> error(-noise, noise);
  const auto circle = [&](size_t residue, size_t coordinate) {
    const double angle = 2 * M_PI * static_cast<double>(residue) / kModulus + error(random);
    return static_cast<float>(coordinate == 0 ? std::cos(angle) : std::sin(angle));
  };
  Match2Errors errors;
  for (int round = 0; round < 20; ++round) {
    const std::vector<size_t> x = RandomResidues(random);
    const std::vector<float> out = Attend(
        hash, kModulus, true, Rows(kLength, 2, [&](size_t t, size_t c) { return circle(x[t], c); }),
        Rows(kLength, 2, [&](size_t t, size_t c) { return circle(Negative(x[t]), c); }),
        Rows(kLength, kModulus, [&](size_t t, size_t c) { return x[t] == c ? 1.0f : 0.0f; }));
    for (size_t i = 0; i < kLength; ++i) {
      const float weight = out[i * PaddedColumns(kModulus) + Negative(x[i])];
      errors.Count(HasMatch(x, i), weight > 0);
    }
  }
  return errors;
}

TEST(AnnaMatch2, EqualVectorsAlwaysCollide) {
  std::mt19937_64 random(TestSeed());
  const Match2Errors errors = CircleMatch2(1, 0.0, random);
  EXPECT_GT(errors.matches, 200u);
  EXPECT_LT(errors.matches, errors.tokens - 100);
  EXPECT_EQ(errors.missed, 0u);
  EXPECT_EQ(errors.invented, 0u);
}

// What tables are for: each one separates some of the near pairs, all of them together none.
TEST(AnnaMatch2, EnoughTablesFindEveryNearPair) {
  std::mt19937_64 random(TestSeed());
  EXPECT_GT(CircleMatch2(1, 0.04, random).missed, 0u);
  const Match2Errors many = CircleMatch2(16, 0.04, random);
  EXPECT_EQ(many.missed, 0u);
  EXPECT_EQ(many.invented, 0u);
}

// Keys that are almost orthogonal unless they match, and values that are all 1: the output itself
// is the answer, because it is 0 where nothing collides.
TEST(AnnaMatch2, WithoutACollisionTheOutputIsZero) {
  std::mt19937_64 random(TestSeed());
  const HashCase hash = RandomHash({HashFamily::kSimHash, 1, kModulus - 1, 2, 14}, random);
  const auto frequencies = [](size_t residue, size_t coordinate) {
    const double angle = 2 * M_PI * static_cast<double>(residue * (coordinate / 2 + 1)) / kModulus;
    return static_cast<float>(coordinate % 2 == 0 ? std::cos(angle) : std::sin(angle)) *
           std::sqrt(2.0f / (kModulus - 1));
  };
  Match2Errors errors;
  for (int round = 0; round < 20; ++round) {
    const std::vector<size_t> x = RandomResidues(random);
    const auto at = [&](bool negate) {
      return Rows(kLength, kModulus - 1, [&](size_t t, size_t c) {
        return frequencies(negate ? Negative(x[t]) : x[t], c);
      });
    };
    const std::vector<float> out =
        Attend(hash, 1, true, at(false), at(true), std::vector<float>(kLength, 1.0f));
    for (size_t i = 0; i < kLength; ++i) {
      const float answer = out[i * PaddedColumns(1)];
      EXPECT_TRUE(answer == 0.0f || answer == 1.0f) << answer;
      errors.Count(HasMatch(x, i), answer == 1.0f);
    }
  }
  EXPECT_EQ(errors.missed, 0u);
  EXPECT_LT(errors.invented, errors.tokens / 50);
}

// Section 14.1: the weights of a query sum to 1, and each of the n keys that collide with it has at
// least 1 / ((n - 1)ℓ + 1). Values are one-hot over the positions, so the output is the weights.
TEST(Anna, WeightsKeepTheBoundOfTheDefinition) {
  std::mt19937_64 random(TestSeed());
  constexpr size_t kTokens = 48, kDim = 6, kTables = 8;
  const HashCase hash = RandomHash({HashFamily::kSimHash, 1, kDim, kTables, 3}, random);
  const std::vector<float> w =
      Attend(hash, kTokens, false, RandomFloats(kTokens * kDim, random),
             RandomFloats(kTokens * kDim, random),
             Rows(kTokens, kTokens, [](size_t t, size_t c) { return t == c ? 1.0f : 0.0f; }));
  for (size_t t = 0; t < kTokens; ++t) {
    const std::span<const float> row(&w[t * kTokens], kTokens);
    const auto positive = [](float weight) { return weight > 0; };
    const auto n = std::count_if(row.begin(), row.end(), positive);
    const double bound = 1.0 / (static_cast<double>(n - 1) * kTables + 1);
    double sum = 0;
    for (size_t s = 0; s < kTokens; ++s) {
      sum += row[s];
      EXPECT_TRUE(s < t || row[s] == 0) << "token " << t << " sees " << s;
      EXPECT_TRUE(row[s] == 0 || row[s] >= bound * (1 - 1e-6)) << row[s] << " of " << n;
    }
    EXPECT_NEAR(sum, n == 0 ? 0.0 : 1.0, 1e-6);
  }
}

}  // namespace
}  // namespace rivulet
