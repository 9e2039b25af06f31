// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/tensor_view.h"

#include <vector>

#include "gtest/gtest.h"

namespace rivulet {
namespace {

TEST(TensorViewTest, RowsAndColumnsKeepTheStride) {
  std::vector<float> data(4 * 10);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  const FloatMatrix whole{data.data(), 4, 8, 10};
  EXPECT_EQ(whole.row(2)[3], 23.0f);
  const ConstFloatMatrix part = whole.Rows(1, 2).Columns(3, 4);
  EXPECT_EQ(part.rows, 2u);
  EXPECT_EQ(part.columns, 4u);
  EXPECT_EQ(part.stride, 10u);
  EXPECT_EQ(part.row(1)[0], 23.0f);
  EXPECT_EQ(whole.Columns(3, 4).Rows(1, 2).row(1), part.row(1));
}

}  // namespace
}  // namespace rivulet
