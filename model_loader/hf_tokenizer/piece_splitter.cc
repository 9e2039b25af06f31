// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/piece_splitter.h"

namespace rivulet {
namespace {

struct Part {
  TextRange range;
  bool matched = false;
};

// Matches and what is between them.
std::vector<Part> PartsOf(const TextRange& piece, std::span<const TextRange> matches, bool invert) {
  std::vector<Part> parts;
  parts.reserve(2 * matches.size() + 1);
  size_t end = piece.begin;
  for (const TextRange& match : matches) {
    const TextRange moved = {piece.begin + match.begin, piece.begin + match.end};
    if (moved.begin != end) parts.push_back({{end, moved.begin}, invert});
    parts.push_back({moved, !invert});
    end = moved.end;
  }
  if (end != piece.end) parts.push_back({{end, piece.end}, invert});
  return parts;
}

// Whether two neighbours are one piece.
bool Joins(const Part& left, const Part& right, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kMergedWithPrevious:
      return right.matched && !left.matched;
    case SplitBehavior::kMergedWithNext:
      return left.matched && !right.matched;
    case SplitBehavior::kContiguous:
      return left.matched == right.matched;
    default:
      return false;
  }
}

}  // namespace

SplitBehavior ReadSplitBehavior(ConfigReader& reader, std::string_view otherwise) {
  return reader.Choice<SplitBehavior>("behavior", otherwise,
                                      {{"Removed", SplitBehavior::kRemoved},
                                       {"Isolated", SplitBehavior::kIsolated},
                                       {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
                                       {"MergedWithNext", SplitBehavior::kMergedWithNext},
                                       {"Contiguous", SplitBehavior::kContiguous}});
}

void SplitPiece(const TextRange& piece, std::span<const TextRange> matches, SplitBehavior behavior,
                bool invert, std::vector<TextRange>* pieces) {
  const std::vector<Part> parts = PartsOf(piece, matches, invert);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].matched && behavior == SplitBehavior::kRemoved) continue;
    TextRange range = parts[i].range;
    while (i + 1 < parts.size() && Joins(parts[i], parts[i + 1], behavior)) {
      range.end = parts[++i].range.end;
    }
    if (range.begin != range.end) pieces->push_back(range);
  }
}

}  // namespace rivulet
