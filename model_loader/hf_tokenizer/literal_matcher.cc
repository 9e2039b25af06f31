// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/literal_matcher.h"

#include "kernels/base/check.h"

namespace rivulet {

LiteralMatcher::LiteralMatcher() : ends_(1) {}

void LiteralMatcher::Add(std::string_view literal, uint32_t value) {
  RIVULET_CHECK(!literal.empty(), "an empty literal would match everywhere");
  begins_[static_cast<uint8_t>(literal[0])] = true;
  uint32_t node = 0;
  for (const char byte : literal) {
    const uint64_t edge = uint64_t{node} << 8 | static_cast<uint8_t>(byte);
    const auto [child, is_new] = children_.emplace(edge, static_cast<uint32_t>(ends_.size()));
    if (is_new) ends_.emplace_back();
    node = child->second;
  }
  if (!ends_[node].has_value()) ends_[node] = value;
}

std::optional<LiteralMatcher::Match> LiteralMatcher::LongestAt(std::string_view text, size_t begin,
                                                               Counts counts) const {
  std::optional<Match> longest;
  uint32_t node = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    const auto child = children_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[i]));
    if (child == children_.end()) break;
    node = child->second;
    if (!ends_[node].has_value()) continue;
    const Match match{begin, i + 1, *ends_[node]};
    if (counts(match)) longest = match;
  }
  return longest;
}

std::optional<LiteralMatcher::Match> LiteralMatcher::Find(std::string_view text, size_t from,
                                                          Counts counts) const {
  for (size_t i = from; i < text.size(); ++i) {
    if (!begins_[static_cast<uint8_t>(text[i])]) continue;
    if (const auto match = LongestAt(text, i, counts)) return match;
  }
  return std::nullopt;
}

}  // namespace rivulet
