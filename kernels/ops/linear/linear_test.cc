// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/linear/linear.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "kernels/base/test_support.h"

namespace rivulet {
namespace {

// A [outputs, inputs] matrix as stored in a file, at an odd address.
class FileMatrix {
 public:
  FileMatrix(std::span<const float> values, DType dtype)
      : bytes_(values.size() * DTypeSize(dtype) + 1) {
    for (size_t i = 0; i < values.size(); ++i) Store(i, values[i], dtype);
  }
  const void* data() const { return bytes_.data() + 1; }
  // The numbers that are really stored.
  const std::vector<float>& values() const { return values_; }

 private:
  void Store(size_t i, float value, DType dtype) {
    if (dtype == DType::kFloat32) {
      std::memcpy(bytes_.data() + 1 + 4 * i, &value, 4);
      values_.push_back(value);
      return;
    }
    // Halves: small integers over 64, which fp16 holds exactly.
    const auto half = dtype == DType::kBFloat16 ? FloatToBFloat16(value)
                                                : static_cast<uint16_t>(0x3c00 + (i * 37) % 1024);
    std::memcpy(bytes_.data() + 1 + 2 * i, &half, 2);
    values_.push_back(dtype == DType::kBFloat16 ? BFloat16ToFloat(half) : Float16ToFloat(half));
  }

  std::vector<char> bytes_;
  std::vector<float> values_;
};

std::vector<double> Reference(std::span<const float> x, std::span<const float> weight,
                              const float* bias, size_t tokens, size_t inputs, size_t outputs) {
  std::vector<double> y;
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t n = 0; n < outputs; ++n) {
      double sum = bias == nullptr ? 0.0 : bias[n];
      for (size_t i = 0; i < inputs; ++i) {
        sum += double{x[t * inputs + i]} * weight[n * inputs + i];
      }
      y.push_back(sum);
    }
  }
  return y;
}

// The contract, number by number: one chain, inputs ascending from zero, then the bias.
float Chain(const float* x, const float* weight, const float* bias, size_t inputs) {
  float sum = 0.0f;
  for (size_t i = 0; i < inputs; ++i) sum = std::fma(x[i], weight[i], sum);
  return bias == nullptr ? sum : sum + *bias;
}

struct Case {
  size_t tokens, inputs, outputs;
  DType dtype;
  bool bias;
};

void CheckCase(const Case& c, std::mt19937_64& random, ThreadPool& pool) {
  SCOPED_TRACE(std::to_string(c.tokens) + "x" + std::to_string(c.inputs) + "x" +
               std::to_string(c.outputs) + " " + DTypeName(c.dtype));
  const FileMatrix file(RandomFloats(c.outputs * c.inputs, random), c.dtype);
  const std::vector<float> bias = RandomFloats(c.outputs, random);
  const float* bias_data = c.bias ? bias.data() : nullptr;
  const Linear linear =
      Linear::Pack({{file.data(), c.dtype, c.outputs, bias_data}}, c.inputs, c.dtype, &pool);
  TestMatrix x(c.tokens, c.inputs, 1, 3), y(c.tokens, c.outputs, 2, 40);
  x.Fill(RandomFloats(c.tokens * c.inputs, random));
  linear.Apply(x.view(), y.view(), pool);
  const auto reference =
      Reference(x.Values(), file.values(), bias_data, c.tokens, c.inputs, c.outputs);
  EXPECT_TRUE(Close(y.Values(), reference, 4e-6, std::sqrt(static_cast<double>(c.inputs))));
  EXPECT_TRUE(y.CanariesAlive()) << "only `outputs` columns may be written";
  for (size_t n = 0; n < c.outputs; n += 7) {
    const float expected = Chain(x.view().row(c.tokens - 1), file.values().data() + n * c.inputs,
                                 c.bias ? &bias[n] : nullptr, c.inputs);
    ASSERT_EQ(Bits(y.view().row(c.tokens - 1)[n]), Bits(expected)) << "output " << n;
  }
}

TEST(LinearTest, EachOutputIsOneChainAndMatchesFp64) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(2);
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (size_t tokens : {1, 2, 3, 4, 5, 6, 7, 13}) {
      for (size_t outputs : {1, 15, 16, 17, 64, 100, 130, 150, 289}) {
        for (size_t inputs : {1, 3, 64, 257}) {
          CheckCase({tokens, inputs, outputs, dtype, outputs % 2 == 0}, random, pool);
        }
      }
    }
  }
}

TEST(LinearTest, ManyTokensAndLargeMatrices) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(3);
  CheckCase({200, 96, 400, DType::kFloat32, true}, random, pool);
  CheckCase({97, 500, 130, DType::kBFloat16, false}, random, pool);
  CheckCase({1, 2048, 1000, DType::kBFloat16, true}, random, pool);
}

TEST(LinearTest, NoTokensOrNoOutputsIsNothing) {
  ThreadPool pool(2);
  const Linear empty;
  empty.Apply({}, {}, pool);
  EXPECT_EQ(empty.inputs(), 0u);
  EXPECT_EQ(empty.weight_bytes(), 0u);
  const std::vector<float> weight(6, 1.0f);
  Linear::Pack({{weight.data(), DType::kFloat32, 2, nullptr}}, 3, DType::kFloat32)
      .Apply({nullptr, 0, 3, 3}, {nullptr, 0, 2, 2}, pool);
}

TEST(LinearTest, BitsAreTheSameForEveryBatchThreadCountAndVectorWidth) {
  std::mt19937_64 random(TestSeed());
  // Enough work for several tasks, and inputs that are cut in the middle of a chain.
  constexpr size_t kInputs = 601, kOutputs = 280, kTokens = 33;
  const std::vector<float> weight = RandomFloats(kInputs * kOutputs, random);
  const std::vector<float> bias = RandomFloats(kOutputs, random);
  TestMatrix x(kTokens, kInputs);
  x.Fill(RandomFloats(kTokens * kInputs, random));
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Linear linear =
        Linear::Pack({{weight.data(), DType::kFloat32, kOutputs, bias.data()}}, kInputs, dtype);
    std::vector<float> first;
    ForEachFusedTarget([&](const char* target) {
      for (size_t threads = 1; threads <= 3; ++threads) {
        ThreadPool pool(threads);
        for (size_t tokens = 1; tokens <= kTokens; ++tokens) {
          TestMatrix y(tokens, kOutputs);
          linear.Apply(x.view().Rows(kTokens - tokens, tokens), y.view(), pool);
          const std::vector<float> values = y.Values();
          if (first.empty()) {
            TestMatrix all(kTokens, kOutputs);
            linear.Apply(x.view(), all.view(), pool);
            first = all.Values();
          }
          ASSERT_TRUE(SameBits(values, std::span(first).last(values.size())))
              << target << " threads " << threads << " tokens " << tokens;
        }
      }
    });
  }
}

TEST(LinearTest, PackConcatenatesSourcesOfAnyDType) {
  std::mt19937_64 random(TestSeed());
  constexpr size_t kInputs = 20;
  ThreadPool pool(1);
  const FileMatrix a(RandomFloats(3 * kInputs, random), DType::kFloat32);
  const FileMatrix b(RandomFloats(18 * kInputs, random), DType::kBFloat16);
  const FileMatrix c(RandomFloats(5 * kInputs, random), DType::kFloat16);
  const std::vector<float> bias = RandomFloats(18, random);
  const Linear linear = Linear::Pack({{a.data(), DType::kFloat32, 3, nullptr},
                                      {b.data(), DType::kBFloat16, 18, bias.data()},
                                      {c.data(), DType::kFloat16, 5, nullptr}},
                                     kInputs, DType::kFloat32);
  EXPECT_EQ(linear.outputs(), 26u);
  EXPECT_EQ(linear.weight_bytes(), (32 * kInputs + 32) * sizeof(float));
  TestMatrix x(1, kInputs), y(1, 26);
  x.Fill(RandomFloats(kInputs, random));
  linear.Apply(x.view(), y.view(), pool);
  std::vector<float> expected;
  const auto append = [&](const FileMatrix& file, const float* file_bias) {
    for (size_t n = 0; n * kInputs < file.values().size(); ++n) {
      expected.push_back(Chain(x.view().data, file.values().data() + n * kInputs,
                               file_bias == nullptr ? nullptr : file_bias + n, kInputs));
    }
  };
  append(a, nullptr);
  append(b, bias.data());
  append(c, nullptr);
  EXPECT_EQ(y.Values(), expected);
}

// Packed weights are kept on disk (model_loader/packed_cache.h). If this fails because the layout
// has changed, raise kPackedLinearVersion.
TEST(LinearTest, TheLayoutOfVersionOne) {
  ASSERT_EQ(kPackedLinearVersion, 1u);
  constexpr size_t kInputs = 70, kOutputs = 19;
  std::mt19937_64 random(TestSeed());
  const std::vector<float> weight = RandomFloats(kOutputs * kInputs, random);
  const std::vector<float> bias = RandomFloats(kOutputs, random);
  std::vector<float> panels(32 * kInputs), padded_bias(32);
  for (size_t n = 0; n < kOutputs; ++n) {
    padded_bias[n] = bias[n];
    for (size_t i = 0; i < kInputs; ++i) {
      panels[(n / 16 * kInputs + i) * 16 + n % 16] = weight[n * kInputs + i];
    }
  }
  const Linear map = Linear::Pack({{weight.data(), DType::kFloat32, kOutputs, bias.data()}},
                                  kInputs, DType::kFloat32);
  const PackedLinear packed = map.packed();
  EXPECT_TRUE(std::ranges::equal(packed.panels, std::as_bytes(std::span(panels))));
  EXPECT_TRUE(std::ranges::equal(packed.bias, std::as_bytes(std::span(padded_bias))));
}

TEST(LinearTest, WorksOnWeightsThatWerePackedBefore) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(2);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const bool has_bias : {true, false}) {
      const std::vector<float> weight = RandomFloats(33 * 20, random);
      const std::vector<float> bias = RandomFloats(33, random);
      TestMatrix x(4, 20), expected(4, 33), y(4, 33);
      x.Fill(RandomFloats(4 * 20, random));
      Linear again;
      {
        const Linear map = Linear::Pack(
            {{weight.data(), DType::kFloat32, 33, has_bias ? bias.data() : nullptr}}, 20, dtype);
        map.Apply(x.view(), expected.view(), pool);
        again = Linear::FromPacked(map.packed());
        EXPECT_EQ(again.weight_bytes(), map.weight_bytes());
      }
      again.Apply(x.view(), y.view(), pool);  // the first map is gone
      EXPECT_EQ(y.Values(), expected.Values());
    }
  }
}

TEST(LinearTest, PackingToBFloat16RoundsToNearestEven) {
  const std::vector<float> weight = {1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f, 1.0f + 0x1p-8f + 0x1p-20f};
  const Linear linear =
      Linear::Pack({{weight.data(), DType::kFloat32, 3, nullptr}}, 1, DType::kBFloat16);
  const float one = 1.0f;
  ThreadPool pool(1);
  std::vector<float> y(3);
  linear.Apply({&one, 1, 1, 1}, {y.data(), 1, 3, 3}, pool);
  EXPECT_EQ(y, (std::vector<float>{1.0f, 1.0f + 0x1p-6f, 1.0f + 0x1p-7f}));
}

TEST(LinearTest, TheBaselineTargetIsCorrectToo) {
  std::mt19937_64 random(TestSeed());
  const std::vector<float> weight = RandomFloats(40 * 33, random);
  TestMatrix x(5, 33), y(5, 40);
  x.Fill(RandomFloats(5 * 33, random));
  ThreadPool pool(1);
  OnBaselineTarget([&] {
    Linear::Pack({{weight.data(), DType::kFloat32, 40, nullptr}}, 33, DType::kFloat32)
        .Apply(x.view(), y.view(), pool);
  });
  EXPECT_TRUE(Close(y.Values(), Reference(x.Values(), weight, nullptr, 5, 33, 40), 2e-6));
}

}  // namespace
}  // namespace rivulet
