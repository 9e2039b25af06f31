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

TEST(StateLayoutTest, AppendsAnothersPlanes) {
  StateLayout first, second;
  first.Add(StatePart::kBase, "S", DType::kFloat32, {5});
  first.SetPageKind({.rule = PageRule::kAppended});
  first.Add(StatePart::kPage, "k", DType::kFloat32, {16});
  second.Add(StatePart::kBase, "S", DType::kFloat32, {3});
  const size_t z = second.Add(StatePart::kBase, "z", DType::kFloat32, {3});
  second.Add(StatePart::kTail, "h", DType::kFloat32, {1});
  second.SetRunningTail();

  StateLayout both;
  const PartOffsets at = both.Append(first, "0."), then = both.Append(second, "1.");
  EXPECT_EQ(at.base + at.tail + at.page, 0u);
  EXPECT_EQ(then.base, first.base_bytes());
  EXPECT_EQ(then.tail, 0u);
  EXPECT_EQ(then.page, first.page_bytes());
  EXPECT_EQ(both.base_bytes(), first.base_bytes() + second.base_bytes());
  EXPECT_EQ(both.planes()[3].name, "1.z");
  EXPECT_EQ(both.planes()[3].offset, first.base_bytes() + z);
  EXPECT_EQ(both.page_kind(), first.page_kind());
  EXPECT_TRUE(both.running_tail());

  std::byte slots[1024];
  const LayerState all{.bases = slots, .base_stride = 512, .tails = slots, .pages = slots};
  const LayerState own = then.Of(all);
  EXPECT_EQ(own.Base<std::byte>(1, z), slots + 512 + first.base_bytes() + z);
  EXPECT_EQ(own.pages, slots + first.page_bytes());
  EXPECT_EQ(then.Of(LayerState()).pages, nullptr);
}

TEST(StateLayoutTest, ItsPagesCoverItsFoldInterval) {
  StateLayout layout(32);
  layout.SetPageKind({.rule = PageRule::kAppended});
  EXPECT_EQ(layout.fold_interval(), 32u);
  EXPECT_EQ(layout.page_kind().fold_interval, 32u);
}

TEST(SegmentTest, FoldsExactlyWhenAChunkEnds) {
  for (const size_t c : {16, 32}) {
    EXPECT_FALSE(Folds(0, c - 1, c));
    EXPECT_TRUE(Folds(0, c, c));
    EXPECT_TRUE(Folds(c - 1, 1, c));
    EXPECT_FALSE(Folds(c, 1, c));
    EXPECT_TRUE(Folds(2 * c - 1, 2, c));
    EXPECT_EQ(FoldsIn(c - 1, 2 * c + 1, c), 3u);
  }
}

// The pieces cover the tokens once and in order. They are cut only at absolute multiples of the
// fold interval, and they fold exactly there.
void CheckPieces(uint64_t position, size_t tokens, size_t interval) {
  const Segment segment{.first_token = 5, .tokens = tokens, .position = position};
  size_t next = 5;
  bool first = true;
  ForEachChunkPiece(segment, interval, [&](const ChunkPiece& piece) {
    EXPECT_EQ(piece.first_token, next);
    EXPECT_EQ(piece.begin, (position + next - 5) % interval);
    EXPECT_LT(piece.begin, piece.end);
    EXPECT_EQ(piece.folds, piece.end == interval);
    EXPECT_EQ(piece.first, std::exchange(first, false));
    EXPECT_EQ(piece.fold, FoldsIn(position, next - 5, interval));
    next += piece.end - piece.begin;
  });
  EXPECT_EQ(next, 5 + tokens);
}

TEST(SegmentTest, PiecesCoverTheSegmentAndCutAtAbsoluteBorders) {
  for (const size_t interval : {16, 32}) {
    for (uint64_t position = 0; position < 2 * interval + 8; ++position) {
      for (size_t tokens = 1; tokens < 4 * interval + 6; ++tokens) {
        CheckPieces(position, tokens, interval);
      }
    }
  }
}

}  // namespace
}  // namespace rivulet
