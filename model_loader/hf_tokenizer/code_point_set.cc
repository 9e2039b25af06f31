// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/code_point_set.h"

#include <algorithm>

namespace rivulet {

CodePointSet::CodePointSet(std::span<const CodeRange> ranges) {
  std::vector<CodeRange> sorted(ranges.begin(), ranges.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const CodeRange& a, const CodeRange& b) { return a.first < b.first; });
  for (const CodeRange& range : sorted) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CodePointSet CodePointSet::Range(uint32_t first, uint32_t last) {
  const CodeRange range[] = {{first, last}};
  return CodePointSet(range);
}

bool CodePointSet::Contains(uint32_t code) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), code,
                       [](uint32_t value, const CodeRange& range) { return value < range.first; });
  return after != ranges_.begin() && code <= (after - 1)->last;
}

CodePointSet CodePointSet::Union(const CodePointSet& other) const {
  std::vector<CodeRange> all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePointSet(all);
}

CodePointSet CodePointSet::Intersection(const CodePointSet& other) const {
  return Complement().Union(other.Complement()).Complement();
}

CodePointSet CodePointSet::Complement() const {
  CodePointSet result;
  uint32_t next = 0;
  for (const CodeRange& range : ranges_) {
    if (range.first > next) result.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) result.ranges_.push_back({next, kLastCodePoint});
  return result;
}

}  // namespace rivulet
