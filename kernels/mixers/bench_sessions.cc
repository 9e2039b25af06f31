// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/bench_sessions.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace rivulet {
namespace {

// Bytes of 0x3c are 0.0115 in fp32 and in bf16. Pages that were never written would be one
// page of zeros in the cache.
constexpr int kSmallNumbers = 0x3c;
// Tokens planned at once on the way to a position.
constexpr uint64_t kStride = 512;

std::vector<uint64_t> SpreadPositions(size_t count) {
  std::vector<uint64_t> positions(count);
  for (size_t s = 0; s < count; ++s) positions[s] = s % kFoldInterval;
  return positions;
}

size_t PagesEach(const PageKind& kind, const std::vector<uint64_t>& positions, size_t tokens) {
  const uint64_t last = *std::max_element(positions.begin(), positions.end());
  const uint64_t end = last + BenchSessions::kRoom + tokens;
  return MostPages(kind, end, std::max<uint64_t>(kStride, tokens));
}

size_t PlaneBytes(const StatePlane& plane) {
  size_t bytes = DTypeSize(plane.dtype);
  for (const size_t extent : plane.shape) bytes *= extent;
  return bytes;
}

// Planes that hold a running state, read and written by every token ("h.now" of mamba).
double RunningBytes(const StateLayout& layout) {
  double bytes = 0;
  for (const StatePlane& plane : layout.planes()) {
    const std::string_view name = plane.name;
    if (name.size() > 4 && name.substr(name.size() - 4) == ".now") bytes += PlaneBytes(plane);
  }
  return bytes;
}

// Of tables [heads, tables, buckets, ...] a token reads one bucket of each table, and a fold those
// of C keys. 0: the layer has none.
double BucketBytes(const StateLayout& layout) {
  double bytes = 0;
  for (const StatePlane& plane : layout.planes()) {
    if (plane.name.rfind("bucket_", 0) != 0) continue;
    bytes += static_cast<double>(PlaneBytes(plane)) / static_cast<double>(plane.shape[2]);
  }
  return bytes;
}

}  // namespace

BenchSessions::BenchSessions(const StateLayout& layout, std::vector<uint64_t> positions,
                             size_t tokens)
    : segments(positions.size()),
      layout_(layout),
      positions_(std::move(positions)),
      tokens_(tokens),
      slots_(layout, positions_.size(), PagesEach(layout.page_kind(), positions_, tokens),
             kSmallNumbers) {
  sessions_.reserve(positions_.size());
  Return();
}

BenchSessions::BenchSessions(const StateLayout& layout, size_t count, size_t tokens)
    : BenchSessions(layout, SpreadPositions(count), tokens) {}

void BenchSessions::Plan() {
  const auto behind = [](const SuiteSession& session, uint64_t start) {
    return session.position - start > kRoom;
  };
  if (behind(sessions_[0], positions_[0])) Return();
  for (size_t s = 0; s < sessions_.size(); ++s) {
    segments[s] = sessions_[s].Plan(s * tokens_, tokens_);
  }
}

void BenchSessions::Commit() {
  for (SuiteSession& session : sessions_) session.Commit();
}

void BenchSessions::Return() {
  sessions_.clear();
  for (size_t s = 0; s < positions_.size(); ++s) {
    const auto slot = static_cast<uint32_t>(s);
    MoveTo(positions_[s], sessions_.emplace_back(slots_, slot, slot));
  }
}

void BenchSessions::MoveTo(uint64_t position, SuiteSession& session) {
  if (layout_.page_kind().rule == PageRule::kNone) session.position = position;
  while (session.position < position) {
    session.Plan(0, std::min(kStride, position - session.position));
    session.Commit();
  }
}

size_t BenchSessions::state_bytes() const {
  return layout_.base_bytes() + pages() * layout_.page_bytes();
}

double BenchSessions::bytes_a_token() const {
  const auto base = static_cast<double>(layout_.base_bytes());
  const auto tail = static_cast<double>(layout_.tail_bytes());
  const double buckets = BucketBytes(layout_);
  if (buckets > 0) return buckets * (1.0 + 2.0) + tail / 2.0;
  const double running = RunningBytes(layout_);
  const double read = static_cast<double>(pages() * layout_.page_bytes()) +
                      (base - running) * (1.0 + 2.0 / kFoldInterval) + 2.0 * running;
  const double folded = static_cast<double>(
      layout_.page_bytes() *
      PagesMovedByFold(layout_.page_kind(), sessions_[0].position / kFoldInterval));
  return read + (tail - running) / 2.0 + folded / kFoldInterval;
}

}  // namespace rivulet
