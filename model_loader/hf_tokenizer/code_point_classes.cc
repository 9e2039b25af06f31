// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/code_point_classes.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "model_loader/hf_tokenizer/utf8_text.h"

namespace rivulet {
namespace {

// Where the answer of some set changes.
std::vector<uint32_t> Borders(std::span<const CodePointSet> sets) {
  std::vector<uint32_t> borders = {0};
  for (const CodePointSet& set : sets) {
    for (const CodeRange& range : set.ranges()) {
      borders.push_back(range.first);
      borders.push_back(range.last + 1);
    }
  }
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  while (borders.back() > kLastCodePoint) borders.pop_back();
  return borders;
}

}  // namespace

absl::StatusOr<CodePointClasses> CodePointClasses::Make(std::span<const CodePointSet> sets) {
  CodePointClasses classes;
  std::vector<Interval> intervals;
  RIVULET_RETURN_IF_ERROR(classes.Divide(sets, &intervals));
  classes.FillTable(intervals);
  return classes;
}

absl::Status CodePointClasses::Divide(std::span<const CodePointSet> sets,
                                      std::vector<Interval>* intervals) {
  of_set_.resize(sets.size());
  std::map<std::vector<bool>, size_t> numbers;
  for (const uint32_t border : Borders(sets)) {
    std::vector<bool> members(sets.size());
    for (size_t i = 0; i < sets.size(); ++i) members[i] = sets[i].Contains(border);
    const auto [entry, is_new] = numbers.emplace(members, numbers.size());
    if (entry->second >= kMost) {
      return absl::UnimplementedError(
          absl::StrCat("its character classes divide Unicode into more "
                       "than ",
                       kMost, " parts"));
    }
    const auto number = static_cast<uint8_t>(entry->second);
    intervals->push_back({border, number});
    for (size_t i = 0; is_new && i < sets.size(); ++i) {
      if (members[i]) of_set_[i].push_back(number);
    }
  }
  return absl::OkStatus();
}

void CodePointClasses::FillTable(const std::vector<Interval>& intervals) {
  std::map<std::string, uint32_t> known;
  size_t next = 0;
  uint8_t current = 0;
  for (uint32_t code = 0; code <= kLastCodePoint; code += 256) {
    std::string block(256, '\0');
    for (uint32_t i = 0; i < 256; ++i) {
      if (next < intervals.size() && intervals[next].first == code + i) {
        current = intervals[next++].of;
      }
      block[i] = static_cast<char>(current);
    }
    const auto [entry, is_new] = known.emplace(block, static_cast<uint32_t>(known.size()));
    if (is_new) table_.insert(table_.end(), block.begin(), block.end());
    blocks_.push_back(entry->second);
  }
}

void CodePointClasses::Map(std::string_view text, std::string* classes) const {
  classes->resize(text.size());
  char* out = classes->data();
  const uint8_t* const ascii = table_.data();  // block 0 is the first
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < 0x80) {
      *out++ = static_cast<char>(ascii[byte]);
      ++i;
    } else {
      *out++ = static_cast<char>(Of(NextCodePoint(text, &i)));
    }
  }
  classes->resize(static_cast<size_t>(out - classes->data()));
}

}  // namespace rivulet
