// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/layer_stages.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_support.h"
#include "kernels/mixers/random_parameters.h"

namespace rivulet {
namespace {

// A step of no session, for stages that look at rows only.
class LayerStages : public testing::Test {
 protected:
  FloatMatrix RandomRows(size_t rows, size_t columns) {
    const FloatMatrix x = workspace_.Take(rows, columns);
    const std::vector<float> numbers = RandomFloats(rows * x.stride, random_);
    std::copy(numbers.begin(), numbers.end(), x.data);
    return x;
  }

  std::mt19937_64 random_{TestSeed()};
  Workspace workspace_;
  ThreadPool pool_{2};
  LayerStep step_{{}, {}, &workspace_, &pool_};
  RandomParameters parameters_{1, "", DType::kFloat32};
};

void ExpectPadded(FloatMatrix x, FloatMatrix y, size_t heads, Activation f, float scale) {
  const size_t width = x.columns / heads, padded = PaddedColumns(width);
  ASSERT_EQ(y.columns, heads * padded);
  for (size_t t = 0; t < x.rows; ++t) {
    std::vector<float> activated(x.columns);
    Activate(f, x.row(t), activated.data(), activated.size());
    for (size_t i = 0; i < y.columns; ++i) {
      const size_t h = i / padded, c = i % padded;
      const float expected = c < width ? scale * activated[h * width + c] : 0.0f;
      ASSERT_EQ(Bits(y.row(t)[i]), Bits(expected)) << "row " << t << " column " << i;
    }
  }
}

TEST_F(LayerStages, PaddedHeadsCopyOnlyWhatTheyChange) {
  constexpr size_t kHeads = 2;
  for (const size_t width : {8, 16, 24, 32}) {
    for (const size_t first : {0, 4, 16}) {
      for (const Activation f : {Activation::kIdentity, Activation::kSilu}) {
        for (const float scale : {1.0f, 0.5f}) {
          const FloatMatrix x = RandomRows(3, 100).Columns(first, kHeads * width);
          const FloatMatrix y = PaddedHeads(step_, x, kHeads, f, scale);
          ExpectPadded(x, y, kHeads, f, scale);
          const bool unchanged =
              f == Activation::kIdentity && scale == 1.0f && width % 16 == 0 && first % 16 == 0;
          EXPECT_EQ(y.data == x.data, unchanged) << "width " << width << " from " << first;
        }
      }
    }
  }
}

// Parts in the order of their columns; two of them share a tensor, and one is absent.
TEST_F(LayerStages, PartsAreTheColumnsOfOneProduct) {
  constexpr size_t kInputs = 32;
  const Projection projection({{"a", 5, true}, {"absent", 0}, {"bc", 7}, {"bc", 9}}, kInputs,
                              parameters_);
  const FloatMatrix x = RandomRows(3, kInputs);
  const Projected projected = projection.Apply(step_, x);
  EXPECT_EQ(projected[1].data, nullptr);

  const Linear a = TakeLinear("a", 5, kInputs, true, parameters_);
  const Linear bc = TakeLinear("bc", 16, kInputs, false, parameters_);
  const FloatMatrix of_a = workspace_.Take(3, 5), of_bc = workspace_.Take(3, 16);
  a.Apply(x, of_a, pool_);
  bc.Apply(x, of_bc, pool_);
  const std::pair<FloatMatrix, FloatMatrix> same[] = {{projected[0], of_a},
                                                      {projected[2], of_bc.Columns(0, 7)},
                                                      {projected[3], of_bc.Columns(7, 9)}};
  for (const auto& [part, expected] : same) {
    ASSERT_EQ(part.columns, expected.columns);
    for (size_t i = 0; i < 3 * part.columns; ++i) {
      const size_t row = i / part.columns, column = i % part.columns;
      EXPECT_EQ(Bits(part.row(row)[column]), Bits(expected.row(row)[column]));
    }
  }
}

}  // namespace
}  // namespace rivulet
