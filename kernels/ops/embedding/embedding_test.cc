// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/embedding/embedding.h"

#include <bit>
#include <cstring>

#include "kernels/base/test_support.h"

namespace rivulet {
namespace {

constexpr size_t kVocab = 50;

// A table at an odd address; row r, column i holds a number that every DType holds exactly.
float Entry(size_t r, size_t i) { return static_cast<float>(r) + static_cast<float>(i % 2) / 2; }

// For numbers that fp16 holds exactly, subnormals aside. (clang 14 has no _Float16 on x86-64.)
uint16_t ExactFloat16(float value) {
  if (value == 0) return 0;
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) >> 13) - (112u << 10));
}

std::vector<char> MakeTable(DType dtype, size_t width) {
  std::vector<char> bytes(kVocab * width * DTypeSize(dtype) + 1);
  for (size_t i = 0; i < kVocab * width; ++i) {
    const float value = Entry(i / width, i % width);
    const uint16_t half = ExactFloat16(value);
    const uint16_t bf16 = FloatToBFloat16(value);
    char* to = bytes.data() + 1 + i * DTypeSize(dtype);
    if (dtype == DType::kFloat32) std::memcpy(to, &value, 4);
    if (dtype == DType::kBFloat16) std::memcpy(to, &bf16, 2);
    if (dtype == DType::kFloat16) std::memcpy(to, &half, 2);
  }
  return bytes;
}

TEST(EmbeddingTest, CopiesRowsOfEveryDType) {
  const std::vector<uint32_t> ids = {3, 0, 49, 3};
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (size_t width : {1, 15, 16, 17, 64}) {
      const std::vector<char> table = MakeTable(dtype, width);
      TestMatrix x(ids.size(), width, 1, 2);
      Embed({table.data() + 1, dtype, kVocab, width}, ids, x.view());
      for (size_t t = 0; t < ids.size(); ++t) {
        for (size_t i = 0; i < width; ++i) {
          ASSERT_EQ(x.view().row(t)[i], Entry(ids[t], i)) << DTypeName(dtype) << " " << width;
        }
      }
      EXPECT_TRUE(x.CanariesAlive());
    }
  }
}

// Entry (r, i) of panels of 16 rows, as kernels/ops/linear packs a map.
template <typename Number>
std::vector<Number> InPanels(size_t width, Number (*number)(float)) {
  std::vector<Number> panels((kVocab + 15) / 16 * 16 * width);
  for (size_t r = 0; r < kVocab; ++r) {
    for (size_t i = 0; i < width; ++i) {
      panels[(r / 16 * width + i) * 16 + r % 16] = number(Entry(r, i));
    }
  }
  return panels;
}

TEST(EmbeddingTest, ReadsRowsOfPanels) {
  const std::vector<uint32_t> ids = {3, 0, 15, 16, 49, 3};
  for (const size_t width : {1, 15, 16, 17, 64}) {
    const auto wide = InPanels<float>(width, [](float value) { return value; });
    const auto narrow = InPanels<uint16_t>(width, &FloatToBFloat16);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      TestMatrix x(ids.size(), width, 1, 2);
      const void* data = dtype == DType::kFloat32 ? static_cast<const void*>(wide.data())
                                                  : static_cast<const void*>(narrow.data());
      Embed({data, dtype, kVocab, width, 2.0f, true}, ids, x.view());
      for (size_t t = 0; t < ids.size(); ++t) {
        for (size_t i = 0; i < width; ++i) {
          ASSERT_EQ(x.view().row(t)[i], 2 * Entry(ids[t], i)) << DTypeName(dtype) << " " << width;
        }
      }
      EXPECT_TRUE(x.CanariesAlive());
    }
  }
}

TEST(EmbeddingTest, TheMultiplierIsOfEveryEntry) {
  const std::vector<uint32_t> ids = {7, 49};
  const std::vector<char> table = MakeTable(DType::kBFloat16, 17);
  TestMatrix x(ids.size(), 17, 1, 2);
  Embed({table.data() + 1, DType::kBFloat16, kVocab, 17, 12.5f}, ids, x.view());
  for (size_t t = 0; t < ids.size(); ++t) {
    for (size_t i = 0; i < 17; ++i) ASSERT_EQ(x.view().row(t)[i], 12.5f * Entry(ids[t], i));
  }
  EXPECT_TRUE(x.CanariesAlive());
}

TEST(EmbeddingTest, WithoutIdsNothingIsReadOrWritten) {
  TestMatrix x(0, 17, 1, 2);
  Embed({nullptr, DType::kFloat32, kVocab, 17}, {}, x.view());
  EXPECT_TRUE(x.CanariesAlive());
}

TEST(EmbeddingDeathTest, AnIdOutsideOfTheTableIsOurOwnBug) {
  const std::vector<char> table = MakeTable(DType::kFloat32, 4);
  const std::vector<uint32_t> ids = {kVocab};
  TestMatrix x(1, 4);
  EXPECT_DEATH(Embed({table.data() + 1, DType::kFloat32, kVocab, 4}, ids, x.view()), "token id");
}

}  // namespace
}  // namespace rivulet
