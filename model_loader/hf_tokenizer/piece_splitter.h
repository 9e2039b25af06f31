// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What becomes of the matches of a pattern when a piece is split at them.
//
// Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_PIECE_SPLITTER_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_PIECE_SPLITTER_H_

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "model_loader/config_reader.h"
#include "model_loader/hf_tokenizer/pattern.h"

namespace rivulet {

enum class SplitBehavior {
  kRemoved,             // matches are dropped
  kIsolated,            // each is a piece
  kMergedWithPrevious,  // each ends the piece before it
  kMergedWithNext,      // each begins the piece after it
  kContiguous,          // neighbouring ones are one piece
};

// The key "behavior".
SplitBehavior ReadSplitBehavior(ConfigReader& reader, std::string_view otherwise);

// Appends the pieces of `piece` to `pieces`. `matches`: inside of it, by offsets from its begin.
// `invert`: what is between the matches counts as matched.
void SplitPiece(const TextRange& piece, std::span<const TextRange> matches, SplitBehavior behavior,
                bool invert, std::vector<TextRange>* pieces);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_PIECE_SPLITTER_H_
