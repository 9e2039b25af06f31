// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/recurrence/state.h"

#include <gtest/gtest.h>

#include <utility>

namespace rivulet {
namespace {

TEST(StateLayoutTest, PlanesAreAlignedAndCountedPerPart) {
  StateLayout layout;
  EXPECT_EQ(layout.Add(StatePart::kBase, "S", DType::kFloat32, {2, 3, 16}), 0u);
  EXPECT_EQ(layout.Add(StatePart::kTail, "k", DType::kFloat32, {16, 5}), 0u);
  EXPECT_EQ(layout.Add(StatePart::kBase, "z", DType::kBFloat16, {7}), 384u);
  EXPECT_EQ(layout.base_bytes(), 448u);
  EXPECT_EQ(layout.tail_bytes(), 320u);
  ASSERT_EQ(layout.planes().size(), 3u);
  EXPECT_EQ(layout.planes()[2].name, "z");
}

TEST(SegmentTest, FoldsExactlyWhenAChunkEnds) {
  EXPECT_FALSE(Folds(0, 15));
  EXPECT_TRUE(Folds(0, 16));
  EXPECT_TRUE(Folds(15, 1));
  EXPECT_FALSE(Folds(16, 1));
  EXPECT_TRUE(Folds(31, 2));
}

// Whatever the position and length, the pieces cover the tokens once, in order, cut only at
// absolute multiples of kFoldInterval, and fold exactly there.
TEST(SegmentTest, PiecesCoverTheSegmentAndCutAtAbsoluteBorders) {
  for (uint64_t position = 0; position < 40; ++position) {
    for (size_t tokens = 1; tokens < 70; ++tokens) {
      Segment segment{.first_token = 5, .tokens = tokens, .position = position};
      size_t next = 5;
      bool first = true;
      ForEachChunkPiece(segment, [&](const ChunkPiece& piece) {
        EXPECT_EQ(piece.first_token, next);
        EXPECT_EQ(piece.begin, (position + next - 5) % kFoldInterval);
        EXPECT_LT(piece.begin, piece.end);
        EXPECT_EQ(piece.folds, piece.end == kFoldInterval);
        EXPECT_EQ(piece.first, std::exchange(first, false));
        next += piece.end - piece.begin;
      });
      EXPECT_EQ(next, 5 + tokens);
    }
  }
}

}  // namespace
}  // namespace rivulet
