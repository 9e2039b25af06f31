// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/aligned_buffer.h"

#include <cstdint>
#include <fstream>
#include <vector>

#include "gtest/gtest.h"

namespace rivulet {
namespace {

bool Aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % kAlignment == 0; }

TEST(AlignedBufferTest, IsAlignedAndZeroed) {
  constexpr size_t kMapped = kMappedBytes / sizeof(float);
  for (size_t size : {size_t{1}, size_t{15}, size_t{16}, size_t{17}, kMapped - 1, kMapped + 1}) {
    AlignedBuffer<float> buffer(size);
    buffer[size - 1] = 1.0f;
    buffer = AlignedBuffer<float>(size);
    EXPECT_TRUE(Aligned(buffer.data()));
    EXPECT_EQ(buffer.size(), size);
    for (size_t i = 0; i < size; ++i) ASSERT_EQ(buffer[i], 0.0f);
  }
}

size_t ResidentPages() {
  size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident;
}

TEST(AlignedBufferTest, WhatIsNeverTouchedCostsNothing) {
  const size_t before = ResidentPages();
  AlignedBuffer<float> buffer(size_t{256} << 20);  // a gigabyte
  buffer[size_t{100} << 20] = 2.0f;
  EXPECT_EQ(buffer[(size_t{100} << 20) + 1], 0.0f);
  EXPECT_LT(ResidentPages() - before, size_t{4096}) << "more than 16 MiB became resident";
}

TEST(AlignedBufferTest, EmptyHoldsNothing) {
  const AlignedBuffer<float> buffer(0);
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.data(), nullptr);
}

TEST(AlignedBufferTest, MovesItsMemory) {
  AlignedBuffer<uint16_t> from(8);
  from[3] = 7;
  const uint16_t* memory = from.data();
  const AlignedBuffer<uint16_t> to = std::move(from);
  EXPECT_EQ(to.data(), memory);
  EXPECT_EQ(to[3], 7);
}

TEST(AlignedBufferTest, PaddingRoundsUpToWholeBlocks) {
  EXPECT_EQ(PaddedColumns(0), 0u);
  EXPECT_EQ(PaddedColumns(1), 16u);
  EXPECT_EQ(PaddedColumns(16), 16u);
  EXPECT_EQ(PaddedColumns(17), 32u);
}

TEST(WorkspaceTest, HandsOutDisjointAlignedRowsThatStay) {
  Workspace workspace;
  std::vector<FloatMatrix> taken;
  for (size_t i = 0; i < 60; ++i) {
    // Some are larger than a block of the workspace.
    taken.push_back(workspace.Take(1 + i * 37, 1 + i * 13 % 1000));
    const FloatMatrix& m = taken.back();
    EXPECT_TRUE(Aligned(m.data));
    EXPECT_EQ(m.stride, PaddedColumns(m.columns));
    for (size_t k = 0; k < m.rows * m.stride; ++k) m.data[k] = static_cast<float>(i);
  }
  for (size_t i = 0; i < taken.size(); ++i) {
    const FloatMatrix& m = taken[i];
    for (size_t k = 0; k < m.rows * m.stride; ++k) ASSERT_EQ(m.data[k], static_cast<float>(i));
  }
}

TEST(WorkspaceTest, IndicesShareTheMemoryWithoutOverlap) {
  Workspace workspace;
  uint32_t* indices = workspace.TakeIndices(17);
  float* floats = workspace.TakeFloats(1);
  for (uint32_t i = 0; i < 17; ++i) indices[i] = i;
  *floats = 1;
  EXPECT_EQ(indices[16], 16u);
}

TEST(WorkspaceTest, ResetUsesTheSameMemoryAgain) {
  Workspace workspace;
  const auto step = [&] {
    std::vector<float*> taken;
    for (size_t rows : {100, 5000, 3, 900}) taken.push_back(workspace.Take(rows, 512).data);
    workspace.Reset();
    return taken;
  };
  const std::vector<float*> first = step();
  EXPECT_EQ(step(), first);
  EXPECT_EQ(step(), first);
}

}  // namespace
}  // namespace rivulet
