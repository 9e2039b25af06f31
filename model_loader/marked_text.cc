// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/marked_text.h"

#include <algorithm>
#include <utility>

namespace rivulet {
namespace {

// The first range that ends behind `place`.
PlainRanges::const_iterator FirstBehind(const PlainRanges& ranges, size_t place) {
  return std::upper_bound(ranges.begin(), ranges.end(), place,
                          [](size_t value, const TextRange& range) { return value < range.end; });
}

void AddRange(TextRange range, PlainRanges& ranges) {
  if (!ranges.empty() && ranges.back().end == range.begin) {
    ranges.back().end = range.end;
  } else {
    ranges.push_back(range);
  }
}

}  // namespace

MarkedText MarkedText::Of(std::string bytes, bool plain) {
  MarkedText text{std::move(bytes), {}};
  if (plain && !text.bytes.empty()) text.plain.push_back({0, text.bytes.size()});
  return text;
}

void MarkedText::Append(std::string_view part) { bytes += part; }

void MarkedText::Append(const MarkedText& part) {
  const size_t begin = bytes.size();
  for (const TextRange& range : part.plain) {
    AddRange({begin + range.begin, begin + range.end}, plain);
  }
  bytes += part.bytes;
}

MarkedText MarkedText::Part(std::string_view part) const {
  MarkedText result{std::string(part), {}};
  if (plain.empty() || part.empty()) return result;
  const auto begin = static_cast<size_t>(part.data() - bytes.data());
  result.plain = Slice(plain, begin, begin + part.size());
  return result;
}

std::vector<MarkedRun> Runs(const MarkedText& text) {
  std::vector<MarkedRun> runs;
  size_t end = 0;
  for (const TextRange& range : text.plain) {
    if (end < range.begin) runs.push_back({{end, range.begin}, false});
    runs.push_back({range, true});
    end = range.end;
  }
  if (end < text.bytes.size()) runs.push_back({{end, text.bytes.size()}, false});
  return runs;
}

bool IsSound(const MarkedText& text) {
  const auto splits_character = [&](size_t place) {
    return place < text.bytes.size() &&
           (static_cast<unsigned char>(text.bytes[place]) & 0xC0) == 0x80;
  };
  for (size_t i = 0; i < text.plain.size(); ++i) {
    const auto [begin, end] = text.plain[i];
    if (begin >= end || end > text.bytes.size()) return false;
    if (i > 0 && begin <= text.plain[i - 1].end) return false;
    if (splits_character(begin) || splits_character(end)) return false;
  }
  return true;
}

bool Overlaps(const PlainRanges& ranges, size_t begin, size_t end) {
  const auto range = FirstBehind(ranges, begin);
  return begin < end && range != ranges.end() && range->begin < end;
}

bool Covers(const PlainRanges& ranges, size_t begin, size_t end) {
  const auto range = FirstBehind(ranges, begin);
  return range != ranges.end() && range->begin <= begin && end <= range->end;
}

PlainRanges Slice(const PlainRanges& ranges, size_t begin, size_t end) {
  PlainRanges result;
  for (auto range = FirstBehind(ranges, begin); range != ranges.end() && range->begin < end;
       ++range) {
    result.push_back({std::max(range->begin, begin) - begin, std::min(range->end, end) - begin});
  }
  return result;
}

}  // namespace rivulet
