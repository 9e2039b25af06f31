// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The "pre_tokenizer" of a tokenizer.json: cuts a text into the pieces that the model encodes one
// by one.
//
// All kinds of the `tokenizers` package but UnicodeScripts and user-defined ones; an unknown kind
// is UNIMPLEMENTED and named. Threading: const methods may run in any number of threads at once,
// each with its own scratch.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_PRE_TOKENIZER_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_PRE_TOKENIZER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "model_loader/hf_tokenizer/pattern.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

struct PieceList {
  std::string text;               // UTF-8
  std::vector<TextRange> pieces;  // not empty, in order, without overlaps
  bool from_start = true;         // text begins where the whole text does

  std::string_view Text(const TextRange& piece) const {
    return std::string_view(text).substr(piece.begin, piece.end - piece.begin);
  }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // INVALID_ARGUMENT when an expression backtracks too much.
  virtual absl::Status Apply(PatternScratch& scratch, PieceList* list) const = 0;

  // The same pieces, from left to right, in lists that may be small: each is given to `take`, whose
  // first error ends it. What `take` was given before an error is of no use.
  using Take = absl::FunctionRef<absl::Status(const PieceList&)>;
  virtual absl::Status Stream(PatternScratch& scratch, PieceList list, Take take) const;
};

// Null for JSON null: the text is one piece.
absl::StatusOr<std::unique_ptr<const PreTokenizer>> ParsePreTokenizer(const nlohmann::json& json);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_PRE_TOKENIZER_H_
