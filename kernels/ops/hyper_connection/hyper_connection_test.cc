// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/hyper_connection/hyper_connection.h"

#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/base/test_support.h"
#include "kernels/ops/hyper_connection/gated_connection.h"
#include "kernels/ops/hyper_connection/sinkhorn_connection.h"

namespace rivulet {
namespace {

struct Case {
  SinkhornForm form;
  size_t hidden = 0;
};

// A connection with random weights, and what it computes in float64, from the definition.
struct Subject {
  Subject(const Case& which, std::mt19937_64& random)
      : form(which.form),
        hidden(which.hidden),
        map(RandomFloats(form.weights() * form.streams * hidden, random, 0.5f)),
        biases(RandomFloats(form.weights(), random)) {}

  SinkhornConnection Pack() const {
    AlignedBuffer<float> b(biases.size());
    std::copy(biases.begin(), biases.end(), b.data());
    const DType fp32 = DType::kFloat32;
    return {
        form,
        Linear::Pack({{map.data(), fp32, form.weights(), nullptr}}, form.streams * hidden, fp32),
        std::move(b), scales};
  }

  std::vector<double> Weights(const float* s) const {
    const size_t n = form.streams, width = n * hidden;
    double square = 0;
    for (size_t i = 0; i < width; ++i) square += double{s[i]} * s[i];
    const double root = std::sqrt(square / static_cast<double>(width) + form.norm_eps);
    std::vector<double> w(form.weights());
    for (size_t j = 0; j < w.size(); ++j) {
      for (size_t i = 0; i < width; ++i) w[j] += map[j * width + i] * (s[i] / root);
      w[j] = w[j] * scales[j < n ? 0 : j < 2 * n ? 1 : 2] + biases[j];
      if (j < 2 * n) w[j] = 1 / (1 + std::exp(-w[j]));
      if (j < n) w[j] += form.eps;
      if (j >= n && j < 2 * n) w[j] *= 2;
    }
    Mix(&w[2 * n]);
    return w;
  }

  void Mix(double* m) const {
    const size_t n = form.streams;
    for (size_t i = 0; i < n; ++i) {
      double sum = 0;
      for (size_t j = 0; j < n; ++j) sum += std::exp(m[i * n + j]);
      for (size_t j = 0; j < n; ++j) m[i * n + j] = std::exp(m[i * n + j]) / sum + form.eps;
    }
    for (size_t step = 0; step < 2 * form.sinkhorn_rounds - 1; ++step) {
      const bool rows = step % 2 == 1;
      for (size_t i = 0; i < n; ++i) {
        double sum = 0;
        for (size_t j = 0; j < n; ++j) sum += rows ? m[i * n + j] : m[j * n + i];
        for (size_t j = 0; j < n; ++j) (rows ? m[i * n + j] : m[j * n + i]) /= sum + form.eps;
      }
    }
  }

  // x, and then the next streams.
  std::vector<double> Reference(const float* s, const float* output) const {
    const size_t n = form.streams;
    const std::vector<double> w = Weights(s);
    std::vector<double> all((1 + n) * hidden);
    for (size_t i = 0; i < hidden; ++i) {
      for (size_t k = 0; k < n; ++k) all[i] += w[k] * s[k * hidden + i];
      for (size_t m = 0; m < n; ++m) {
        double& next = all[(1 + m) * hidden + i];
        next = w[n + m] * output[i];
        for (size_t k = 0; k < n; ++k) next += w[2 * n + k * n + m] * s[k * hidden + i];
      }
    }
    return all;
  }

  SinkhornForm form;
  size_t hidden;
  std::vector<float> map, biases;
  std::array<float, 3> scales = {0.7f, 1.3f, 0.9f};
};

// What the connection computes for tokens of `s`, each row x and the next streams.
std::vector<float> PassThrough(const HyperConnection& connection, size_t n, TestMatrix& s,
                               TestMatrix& output, ThreadPool& pool) {
  const size_t rows = output.view().rows, hidden = output.view().columns;
  Workspace workspace;
  TestMatrix x(rows, hidden, 1, 3);
  const FloatMatrix weights = connection.Collapse(s.view(), x.view(), workspace, pool);
  connection.Expand(output.view(), weights, s.view(), pool);
  EXPECT_TRUE(x.CanariesAlive());
  EXPECT_TRUE(s.CanariesAlive());
  std::vector<float> all;
  for (size_t t = 0; t < rows; ++t) {
    all.insert(all.end(), x.view().row(t), x.view().row(t) + hidden);
    all.insert(all.end(), s.view().row(t), s.view().row(t) + n * hidden);
  }
  return all;
}

std::vector<Case> Cases() {
  return {{{4, 20, 1e-6f, 1e-5f}, 32},
          {{2, 1, 1e-2f, 1e-6f}, 7},
          {{1, 3, 1e-6f, 1e-6f}, 16},
          {{8, 4, 1e-4f, 1e-5f}, 65},
          {{3, 20, 1e-6f, 1e-5f}, 129}};
}

TEST(HyperConnectionTest, MatchesFp64) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(2);
  for (const Case& which : Cases()) {
    constexpr size_t kTokens = 3;
    const Subject subject(which, random);
    const size_t n = which.form.streams, hidden = which.hidden;
    TestMatrix s(kTokens, n * hidden, 2, 1), output(kTokens, hidden);
    s.Fill(RandomFloats(kTokens * n * hidden, random));
    output.Fill(RandomFloats(kTokens * hidden, random));
    std::vector<double> reference;
    for (size_t t = 0; t < kTokens; ++t) {
      for (double value : subject.Reference(s.view().row(t), output.view().row(t))) {
        reference.push_back(value);
      }
    }
    const std::vector<float> actual = PassThrough(subject.Pack(), n, s, output, pool);
    EXPECT_TRUE(Close(actual, reference, 3e-6, 1.0)) << n << " streams of " << hidden;
  }
}

TEST(HyperConnectionTest, SinkhornMakesRowsAndColumnsSumToOne) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(1);
  const Subject subject({{4, 300, 1e-6f, 1e-5f}, 32}, random);
  TestMatrix s(5, 128), x(5, 32);
  s.Fill(RandomFloats(5 * 128, random));
  Workspace workspace;
  const FloatMatrix weights = subject.Pack().Collapse(s.view(), x.view(), workspace, pool);
  for (size_t t = 0; t < 5; ++t) {
    const float* mix = weights.row(t) + 8;
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(mix[4 * i] + mix[4 * i + 1] + mix[4 * i + 2] + mix[4 * i + 3], 1, 1e-3);
      EXPECT_NEAR(mix[i] + mix[4 + i] + mix[8 + i] + mix[12 + i], 1, 1e-4);
    }
  }
}

// Qwen4-Exp's, and what it computes in float64, from the definition.
struct GatedSubject {
  GatedSubject(const GatedForm& of, size_t width, std::mt19937_64& random)
      : form(of),
        hidden(width),
        norm(RandomFloats(form.streams * hidden, random)),
        down(RandomFloats(form.outputs() * form.streams * hidden, random, 0.3f)),
        up(RandomFloats(form.streams * hidden * form.rank, random, 0.5f)) {}

  GatedConnection Pack() const {
    AlignedBuffer<float> w(norm.size());
    std::copy(norm.begin(), norm.end(), w.data());
    const DType fp32 = DType::kFloat32;
    const size_t all = form.streams * hidden;
    return {form, std::move(w),
            Linear::Pack({{down.data(), fp32, form.outputs(), nullptr}}, all, fp32),
            Linear::Pack({{up.data(), fp32, all, nullptr}}, form.rank, fp32)};
  }

  // x, and then the next streams.
  std::vector<double> Reference(const float* s, const float* output) const {
    const size_t n = form.streams, width = n * hidden;
    std::vector<double> normed(width), low(form.outputs()), all((1 + n) * hidden);
    for (size_t k = 0; k < n; ++k) {
      double square = 0;
      for (size_t i = 0; i < hidden; ++i) square += double{s[k * hidden + i]} * s[k * hidden + i];
      const double root = std::sqrt(square / static_cast<double>(hidden) + form.norm_eps);
      for (size_t i = k * hidden; i < (k + 1) * hidden; ++i) normed[i] = s[i] / root * norm[i];
    }
    for (size_t j = 0; j < low.size(); ++j) {
      for (size_t i = 0; i < width; ++i) low[j] += down[j * width + i] * normed[i];
      low[j] /= static_cast<double>(n);
      if (j < form.rank) low[j] /= 1 + std::exp(-low[j]);
    }
    for (size_t i = 0; i < width; ++i) {
      double gate = 0;
      for (size_t j = 0; j < form.rank; ++j) gate += up[i * form.rank + j] * low[j];
      all[i % hidden] += normed[i] / (1 + std::exp(-gate)) / static_cast<double>(n);
      const double share = 2 / (1 + std::exp(-low[form.rank + i / hidden]));
      all[hidden + i] = s[i] + share * output[i % hidden];
    }
    return all;
  }

  GatedForm form;
  size_t hidden;
  std::vector<float> norm, down, up;
};

TEST(HyperConnectionTest, GatedOnesMatchFp64) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(2);
  for (const size_t hidden : {7, 48, 65}) {
    constexpr size_t kTokens = 3, kStreams = 4;
    const GatedSubject subject({kStreams, 5, true, 1e-6f}, hidden, random);
    TestMatrix s(kTokens, kStreams * hidden, 2, 1), output(kTokens, hidden);
    s.Fill(RandomFloats(kTokens * kStreams * hidden, random));
    output.Fill(RandomFloats(kTokens * hidden, random));
    std::vector<double> reference;
    for (size_t t = 0; t < kTokens; ++t) {
      for (double value : subject.Reference(s.view().row(t), output.view().row(t))) {
        reference.push_back(value);
      }
    }
    const std::vector<float> actual = PassThrough(subject.Pack(), kStreams, s, output, pool);
    EXPECT_TRUE(Close(actual, reference, 3e-6, 1.0)) << hidden;
  }
}

// `make` packs a connection for the target of the moment.
template <typename Make>
void ExpectRowsAloneAndTogetherHaveTheSameBits(std::mt19937_64& random, Make&& make) {
  constexpr size_t kTokens = 150, kHidden = 48, kStreams = 4;
  const std::vector<float> s = RandomFloats(kTokens * kStreams * kHidden, random);
  const std::vector<float> output = RandomFloats(kTokens * kHidden, random);
  std::vector<float> first;
  ForEachFusedTarget([&](const char* target) {
    const auto connection = make();
    for (size_t threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      TestMatrix streams(kTokens, kStreams * kHidden), update(kTokens, kHidden);
      streams.Fill(s);
      update.Fill(output);
      std::vector<float> alone;
      for (size_t t = 0; t < kTokens; ++t) {
        TestMatrix one(1, kStreams * kHidden), its(1, kHidden);
        one.Fill({streams.view().row(t), streams.view().row(t) + kStreams * kHidden});
        its.Fill({update.view().row(t), update.view().row(t) + kHidden});
        for (float value : PassThrough(connection, kStreams, one, its, pool))
          alone.push_back(value);
      }
      const std::vector<float> together = PassThrough(connection, kStreams, streams, update, pool);
      if (first.empty()) first = together;
      EXPECT_TRUE(SameBits(together, first)) << target << " threads " << threads;
      EXPECT_TRUE(SameBits(alone, first)) << target << " threads " << threads;
    }
  });
}

TEST(HyperConnectionTest, RowsAloneAndTogetherHaveTheSameBits) {
  std::mt19937_64 random(TestSeed());
  const Subject sinkhorn({{4, 20, 1e-6f, 1e-5f}, 48}, random);
  ExpectRowsAloneAndTogetherHaveTheSameBits(random, [&] { return sinkhorn.Pack(); });
  const GatedSubject gated({4, 9, true, 1e-6f}, 48, random);
  ExpectRowsAloneAndTogetherHaveTheSameBits(random, [&] { return gated.Pack(); });
}

TEST(HyperConnectionTest, StreamsBeginAsOneAndEndAsTheirMean) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(2);
  TestMatrix x(3, 20, 1, 1), streams(3, 60, 1, 1), mean(3, 20);
  x.Fill(RandomFloats(60, random));
  SpreadToStreams(x.view(), streams.view(), pool);
  for (size_t t = 0; t < 3; ++t) {
    for (size_t i = 0; i < 60; ++i) EXPECT_EQ(streams.view().row(t)[i], x.view().row(t)[i % 20]);
    for (size_t i = 0; i < 20; ++i) streams.view().row(t)[i] += 3;
  }
  MeanOfStreams(streams.view(), mean.view(), pool);
  for (size_t i = 0; i < 20; ++i) EXPECT_NEAR(mean.view().row(1)[i], x.view().row(1)[i] + 1, 1e-6);
}

}  // namespace
}  // namespace rivulet
