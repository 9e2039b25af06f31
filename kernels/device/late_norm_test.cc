// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A residual sum between two maps, with a norm whose factor comes after the second: near exact
// numbers, and the same bits for every number of rows and every way to make the sum and to apply
// the factor. On the fake device and on a GPU.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/base/test_support.h"
#include "kernels/base/worst_difference.h"
#include "kernels/device/device_buffers.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"

namespace rivulet {
namespace {

enum class On { kFake, kBFloat16, kFloat8, kFloat32 };

struct Case {
  size_t inner, hidden, columns;
  On on;
  std::vector<size_t> rows;
};

constexpr float kEps = 1e-5f;
constexpr size_t kSquaresBefore = 16;  // numbers of each square that comes with the input

// Everything that a residual sum and the map behind it leave, row by row.
struct Result {
  std::vector<float> x, operand, y;
};

std::vector<float> RowsOf(const std::vector<float>& numbers, size_t row, size_t count,
                          size_t width) {
  const auto begin = numbers.begin() + static_cast<ptrdiff_t>(row * width);
  return {begin, begin + static_cast<ptrdiff_t>(count * width)};
}

// The first of them and how many there are, or nothing. NaN is like no number.
std::string Differences(const std::vector<float>& a, const std::vector<float>& b, size_t width) {
  constexpr size_t kShown = 40;
  if (a.size() != b.size()) return "other sizes";
  std::ostringstream shown;
  size_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || ++count > kShown) continue;
    shown << "row " << i / width << ", column " << i % width << ": " << a[i] << ", not " << b[i]
          << "; ";
  }
  if (count > 0) shown << count << " in all";
  return shown.str();
}

class LateNormTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().on == On::kFake) {
      device_ = std::make_unique<FakeDevice>();
    } else {
      RIVULET_NEED_GPU();
      auto device = OpenCudaDevice(GetParam().on == On::kFloat32 ? ProductPrecision::kFloat32
                                                                 : ProductPrecision::kBFloat16);
      ASSERT_TRUE(device.ok()) << device.status();
      device_ = *std::move(device);
    }
    // Sums of about the size of x, and weights of both signs.
    for (float& w : first_weights_) w /= std::sqrt(static_cast<float>(inner()));
    for (float& w : second_weights_) w /= std::sqrt(static_cast<float>(hidden()));
    for (float& s : squares_) s = s * s + 0.5f;
    first_ = Packed(first_weights_, hidden(), inner());
    second_ = Packed(second_weights_, columns(), hidden());
    weight_ = ToDevice(*device_, norm_weights_);
  }

  size_t inner() const { return GetParam().inner; }
  size_t hidden() const { return GetParam().hidden; }
  size_t columns() const { return GetParam().columns; }
  size_t most_rows() const {
    return *std::max_element(GetParam().rows.begin(), GetParam().rows.end());
  }
  std::vector<float> Random(size_t count) { return RandomFloats(count, random_); }

  DeviceLinear Packed(const std::vector<float>& weights, size_t outputs, size_t inputs) {
    const std::vector<LinearSource> sources = {{weights.data(), DType::kFloat32, outputs}};
    const auto linear = GetParam().on == On::kFloat8 ? device_->PackFloat8(sources, inputs)
                                                     : device_->Pack(sources, inputs);
    EXPECT_TRUE(linear.ok()) << linear.status();
    return *linear;
  }

  // Rows `first` to first + rows, in device memory that is the test's until the device goes.
  AddProductCall CallFor(size_t first, size_t rows) {
    const auto part = [&](const std::vector<float>& numbers, size_t width) {
      return RowsOf(numbers, first, rows, width);
    };
    const size_t counted = inner() / kSquaresBefore;
    const FloatMatrix before = MatrixOn(*device_, part(squares_, counted), rows, counted);
    const FloatMatrix squares =
        MatrixOn(*device_, std::vector<float>(rows * hidden() / LateNorm::kSquares, NAN), rows,
                 hidden() / LateNorm::kSquares);
    const std::vector<float> nans(rows * hidden(), NAN);
    return {.linear = first_,
            .input = OperandOf(*device_, part(inputs_, inner()), rows, inner()),
            .factor = {.squares = before.data,
                       .stride = static_cast<uint32_t>(before.stride),
                       .count = static_cast<uint32_t>(counted),
                       .width = static_cast<uint32_t>(inner()),
                       .eps = kEps},
            .update = MatrixOn(*device_, nans, rows, hidden()),
            .x = MatrixOn(*device_, part(stream_, hidden()), rows, hidden()),
            .norm = {.weight = weight_,
                     .eps = kEps,
                     .y = OperandOf(*device_, nans, rows, hidden()),
                     .squares = squares.data,
                     .stride = static_cast<uint32_t>(squares.stride),
                     .factors = ToDevice(*device_, std::vector<float>(rows, NAN))}};
  }

  // What the second map makes of the rest, with the factor applied by the device or, where it may
  // leave that, by this function.
  Result After(const AddProductCall& call, const RowFactor& factor, bool may_leave) {
    const size_t rows = call.x.rows;
    const FloatMatrix y =
        MatrixOn(*device_, std::vector<float>(rows * columns(), NAN), rows, columns());
    const bool scaled = device_->ScaledProduct(second_, call.norm.y, factor, may_leave, y);
    EXPECT_TRUE(scaled || may_leave);
    Result result{NumbersOf(*device_, call.x), NumbersOf(*device_, call.norm.y),
                  NumbersOf(*device_, y)};
    if (scaled) return result;
    const std::vector<float> values = FromDevice(*device_, factor.values, rows);
    for (size_t i = 0; i < result.y.size(); ++i) result.y[i] *= values[i / columns()];
    return result;
  }
  Result Run(size_t first, size_t rows, bool may_leave = false) {
    const AddProductCall call = CallFor(first, rows);
    const bool of_squares = device_->AddProduct(call);
    return After(call, call.norm.Factor(hidden(), of_squares), may_leave);
  }
  // The same by a product and a kernel behind it.
  Result RunApart(size_t first, size_t rows, bool may_leave) {
    const AddProductCall call = CallFor(first, rows);
    device_->Product(call.linear, call.input, call.update);
    device_->AddLate({call.x, call.update, call.factor, call.norm});
    return After(call, call.norm.Factor(hidden(), /*of_squares=*/false), may_leave);
  }

  // Some layers of these two maps, one operation behind the other on the device's stream.
  Result RunLayers(size_t rows, bool waits) {
    constexpr int kLayers = 3;
    const AddProductCall call = CallFor(0, rows);
    const auto wait = [&] {
      if (!waits) return;
      const absl::Status status = device_->Synchronize();
      EXPECT_TRUE(status.ok()) << status;
    };
    const FloatMatrix y =
        MatrixOn(*device_, std::vector<float>(rows * columns(), NAN), rows, columns());
    device_->AddLate({.x = call.x, .norm = call.norm});
    RowFactor factor = call.norm.Factor(hidden(), /*of_squares=*/false);
    for (int layer = 0; layer <= kLayers; ++layer) {
      wait();
      device_->ScaledProduct(second_, call.norm.y, factor, /*may_leave=*/false, y);
      wait();
      if (layer < kLayers) factor = call.norm.Factor(hidden(), device_->AddProduct(call));
    }
    return {NumbersOf(*device_, call.x), NumbersOf(*device_, call.norm.y), NumbersOf(*device_, y)};
  }

  void ExpectSame(const Result& a, const Result& b, const std::string& what) {
    EXPECT_EQ(Differences(a.x, b.x, hidden()), "") << "x, " << what;
    EXPECT_EQ(Differences(a.operand, b.operand, PaddedColumns(hidden())), "")
        << "operand, " << what;
    EXPECT_EQ(Differences(a.y, b.y, columns()), "") << "y, " << what;
  }

  std::mt19937_64 random_{TestSeed()};
  std::unique_ptr<Device> device_;
  DeviceLinear first_, second_;
  const float* weight_ = nullptr;
  std::vector<float> first_weights_ = Random(hidden() * inner());
  std::vector<float> second_weights_ = Random(columns() * hidden());
  std::vector<float> norm_weights_ = Random(hidden());
  std::vector<float> stream_ = Random(most_rows() * hidden());
  std::vector<float> inputs_ = Random(most_rows() * inner());
  std::vector<float> squares_ = Random(most_rows() * inner() / kSquaresBefore);
};

// y [columns] of a row, and x [hidden], in fp64.
TEST_P(LateNormTest, IsNearExactNumbers) {
  constexpr size_t kRows = 3;
  const Result result = Run(0, kRows);
  double worst_x = 0, worst_y = 0;
  for (size_t r = 0; r < kRows; ++r) {
    double factor = 0, square = 0;
    for (const float s : RowsOf(squares_, r, 1, inner() / kSquaresBefore)) factor += s;
    factor = 1 / std::sqrt(factor / static_cast<double>(inner()) + kEps);
    std::vector<double> x(hidden());
    for (size_t i = 0; i < hidden(); ++i) {
      double update = 0;
      for (size_t k = 0; k < inner(); ++k) {
        update += double{first_weights_[i * inner() + k]} * inputs_[r * inner() + k];
      }
      x[i] = stream_[r * hidden() + i] + factor * update;
      square += x[i] * x[i];
      worst_x = WorstDifference(worst_x, x[i], result.x[r * hidden() + i]);
    }
    const double scale = 1 / std::sqrt(square / static_cast<double>(hidden()) + kEps);
    for (size_t n = 0; n < columns(); ++n) {
      double y = 0;
      for (size_t i = 0; i < hidden(); ++i) {
        y += double{second_weights_[n * hidden() + i]} * norm_weights_[i] * x[i] * scale;
      }
      worst_y = WorstDifference(worst_y, y, result.y[r * columns() + n]);
    }
  }
  // Seen: 0.41 and 0.036.
  const double tolerance = GetParam().on == On::kFloat8     ? 0.8
                           : GetParam().on == On::kBFloat16 ? 0.07
                                                            : 1e-3;
  EXPECT_LE(worst_x, tolerance);
  EXPECT_LE(worst_y, tolerance);
}

TEST_P(LateNormTest, HasTheSameBitsForEveryNumberOfRows) {
  const Result all = Run(0, most_rows());
  for (const size_t rows : GetParam().rows) {
    const size_t first = most_rows() - rows;
    const Result some = Run(first, rows);
    const Result same{RowsOf(all.x, first, rows, hidden()),
                      RowsOf(all.operand, first, rows, PaddedColumns(hidden())),
                      RowsOf(all.y, first, rows, columns())};
    ExpectSame(some, same, std::to_string(rows) + " rows");
    ExpectSame(Run(first, rows, /*may_leave=*/true), same, std::to_string(rows) + " rows, left");
    for (const bool may_leave : {false, true}) {
      ExpectSame(RunApart(first, rows, may_leave), same,
                 std::to_string(rows) + " rows, apart, " + (may_leave ? "left" : "scaled"));
    }
  }
}

// Kernels begin before those before them have ended, and wait where they need what those write.
TEST_P(LateNormTest, HasTheSameBitsWithoutWaitingForEachOperation) {
  for (const size_t rows : GetParam().rows) {
    const Result awaited = RunLayers(rows, /*waits=*/true);
    for (int run = 0; run < 3; ++run) {
      ExpectSame(RunLayers(rows, /*waits=*/false), awaited,
                 std::to_string(rows) + " rows, run " + std::to_string(run));
    }
  }
}

// Stages of a ring are filled again while warps read others, so what is wrong with that shows in
// some runs only. (An arrival that overtook a load was seen in one of 20 runs with 33 rows.)
TEST_P(LateNormTest, HasTheSameBitsInEveryRun) {
  const int runs = GetParam().on == On::kFake ? 2 : 100;
  for (const size_t rows : {size_t{5}, size_t{17}, size_t{33}}) {
    if (rows > most_rows()) continue;
    const Result first = RunLayers(rows, /*waits=*/false);
    for (int run = 1; run < runs; ++run) {
      ExpectSame(RunLayers(rows, /*waits=*/false), first,
                 std::to_string(rows) + " rows, run " + std::to_string(run));
    }
  }
}

// The first layer's: there is no update.
TEST_P(LateNormTest, NormsRowsWithoutAnUpdate) {
  for (const size_t rows : {size_t{2}, most_rows()}) {
    const AddProductCall call = CallFor(0, rows);
    device_->AddLate({.x = call.x, .norm = call.norm});
    const std::vector<float> x = NumbersOf(*device_, call.x);
    EXPECT_EQ(x, RowsOf(stream_, 0, rows, hidden()));
    const std::vector<float> factors = FromDevice(*device_, call.norm.factors, rows);
    for (size_t r = 0; r < rows; ++r) {
      double square = 0;
      for (const float number : RowsOf(x, r, 1, hidden())) square += double{number} * number;
      EXPECT_NEAR(factors[r], 1 / std::sqrt(square / static_cast<double>(hidden()) + kEps), 1e-4);
    }
  }
}

std::string NameOf(const Case& c) {
  static constexpr const char* kNames[] = {"fake", "bf16", "fp8", "fp32"};
  return std::to_string(c.inner) + "_" + std::to_string(c.hidden) + "_" +
         std::to_string(c.columns) + "_" + kNames[static_cast<int>(c.on)];
}

const std::vector<size_t> kFew = {1, 2, 3, 5, 60};
// Every kernel of products, at both ends of the numbers of rows that it takes.
const std::vector<size_t> kAll = {1,  2,  3,  4,  5,  8,  9,   16,  17,  31, 32,
                                  33, 48, 49, 64, 65, 96, 128, 129, 200, 300};

INSTANTIATE_TEST_SUITE_P(
    Shapes, LateNormTest,
    testing::Values(Case{64, 32, 50, On::kFake, kFew}, Case{128, 96, 200, On::kFake, kFew},
                    // Mamba-2 130M: chains of few outputs, and outputs for every processor.
                    Case{1536, 768, 3352, On::kBFloat16, kAll},
                    // As few_tokens.cu cannot hold all weights; held_tokens.cu; many outputs.
                    Case{4096, 2560, 10576, On::kBFloat16, kAll},
                    // More outputs of a block in the residual sum than registers are kept for.
                    Case{256, 8192, 96, On::kBFloat16,
                         kAll},  // So many outputs that a block has several rounds.
                    Case{64, 64, 18560, On::kBFloat16, kAll}, Case{64, 32, 50, On::kBFloat16, kAll},
                    Case{192, 224, 520, On::kBFloat16, kAll},
                    // hundred_tokens.cu declines the first map at 17 to 32 rows.
                    Case{256, 3392, 320, On::kBFloat16, kAll},
                    Case{512, 256, 1000, On::kFloat8, kAll},
                    Case{1536, 768, 3352, On::kFloat8, kAll},
                    Case{4096, 2560, 10576, On::kFloat8, kAll},
                    Case{256, 8192, 96, On::kFloat8, kAll}, Case{64, 64, 18560, On::kFloat8, kAll},
                    Case{192, 224, 520, On::kFloat8, kAll}, Case{256, 3392, 320, On::kFloat8, kAll},
                    Case{512, 256, 1000, On::kFloat32, kAll}),
    [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace rivulet
