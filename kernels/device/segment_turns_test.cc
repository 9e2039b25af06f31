// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/device/segment_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace rivulet {
namespace {

constexpr uint64_t kChunk = 16;

std::vector<DeviceSegment> SegmentsAt(const std::vector<uint64_t>& positions) {
  std::vector<DeviceSegment> segments;
  for (const uint64_t position : positions) segments.push_back({0, 1, position, 0, 0, 0, 0});
  SetTurns(segments, kChunk);
  return segments;
}

// The segments in the order in which they are taken.
std::vector<uint32_t> Taken(const std::vector<DeviceSegment>& segments) {
  std::vector<uint32_t> taken;
  const DeviceRows rows{.segments = segments.data()};
  for (uint32_t at = 0; at < segments.size(); ++at) taken.push_back(SegmentInTurn(rows, at));
  return taken;
}

// The places at which segments that fold are taken.
std::vector<size_t> FoldPlaces(const std::vector<DeviceSegment>& segments) {
  std::vector<size_t> places;
  const std::vector<uint32_t> taken = Taken(segments);
  for (size_t at = 0; at < taken.size(); ++at) {
    if (segments[taken[at]].position % kChunk == kChunk - 1) places.push_back(at);
  }
  return places;
}

TEST(SegmentTurnsTest, EverySegmentIsTakenOnce) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 1000; ++trial) {
    std::vector<uint64_t> positions(random() % 70);
    for (uint64_t& position : positions) position = random() % (1 + random() % 40);
    std::vector<uint32_t> taken = Taken(SegmentsAt(positions));
    std::sort(taken.begin(), taken.end());
    for (uint32_t r = 0; r < taken.size(); ++r) ASSERT_EQ(taken[r], r);
  }
}

TEST(SegmentTurnsTest, FoldsComeAtEvenDistancesInTheFirstHalf) {
  std::vector<uint64_t> positions;
  for (uint64_t r = 0; r < 64; ++r) positions.push_back(160 + r % 16);
  EXPECT_EQ(FoldPlaces(SegmentsAt(positions)), (std::vector<size_t>{0, 8, 16, 24}));
}

TEST(SegmentTurnsTest, SegmentsKeepTheirOrderWhereNoneOrAllFold) {
  for (const uint64_t position : {uint64_t{3}, uint64_t{15}}) {
    for (const DeviceSegment& segment : SegmentsAt(std::vector<uint64_t>(9, position))) {
      EXPECT_EQ(segment.turn, 0u);
    }
  }
}

TEST(SegmentTurnsTest, MoreThanHalfMayFold) {
  const std::vector<uint64_t> positions = {1, 15, 31, 2, 47, 63};
  EXPECT_EQ(FoldPlaces(SegmentsAt(positions)), (std::vector<size_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace rivulet
