// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/piece_splitter.h"

namespace rivulet {
namespace {

struct Part {
  TextRange range;
  bool matched = false;
};

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

// Joins the parts that are given from left to right.
class PieceJoiner {
 public:
  PieceJoiner(SplitBehavior behavior, std::vector<TextRange>* pieces)
      : behavior_(behavior), pieces_(*pieces) {}

  void Add(const Part& part) {
    if (has_last_ && Joins(last_, part, behavior_)) {
      last_ = {{last_.range.begin, part.range.end}, part.matched};
      return;
    }
    Finish();
    has_last_ = true;
    last_ = part;
  }

  void Finish() {
    const bool removed = last_.matched && behavior_ == SplitBehavior::kRemoved;
    if (last_.range.begin != last_.range.end && !removed) pieces_.push_back(last_.range);
    last_ = {};
  }

 private:
  const SplitBehavior behavior_;
  std::vector<TextRange>& pieces_;
  bool has_last_ = false;
  Part last_;
};

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
  PieceJoiner joiner(behavior, pieces);
  size_t end = piece.begin;
  for (const TextRange& match : matches) {
    const TextRange moved = {piece.begin + match.begin, piece.begin + match.end};
    if (moved.begin != end) joiner.Add({{end, moved.begin}, invert});
    joiner.Add({moved, !invert});
    end = moved.end;
  }
  if (end != piece.end) joiner.Add({{end, piece.end}, invert});
  joiner.Finish();
}

}  // namespace rivulet
