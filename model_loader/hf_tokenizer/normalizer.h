// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The "normalizer" of a tokenizer.json: text to text, before it is split.
//
// All kinds of the `tokenizers` package but user-defined ones; an unknown kind is UNIMPLEMENTED and
// named.
// Threading: const methods may run in any number of threads at once, each with its own scratch.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_NORMALIZER_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_NORMALIZER_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model_loader/hf_tokenizer/pattern.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

struct NormalText {
  std::string text;  // UTF-8
  // Its first character comes from the first of the whole text: Metaspace's "first" asks.
  bool from_start = true;
  size_t most_bytes = size_t{1} << 20;  // longer results are refused
  // Of a text that is normalized in parts: others are before and behind this one. Prepend and Strip
  // leave those ends alone.
  bool has_before = false, has_behind = false;
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // INVALID_ARGUMENT when the result would be too long or an expression backtracks too much.
  virtual absl::Status Apply(PatternScratch& scratch, NormalText* text) const = 0;
};

// Null for JSON null: the text stays as it is.
absl::StatusOr<std::unique_ptr<const Normalizer>> ParseNormalizer(const nlohmann::json& json);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_NORMALIZER_H_
