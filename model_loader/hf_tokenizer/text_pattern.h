// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// {"String": "..."} or {"Regex": "..."} of a tokenizer.json: what Split and Replace look for.
//
// Threading: const methods may run in any number of threads at once, each with its own scratch.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_TEXT_PATTERN_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_TEXT_PATTERN_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model_loader/hf_tokenizer/pattern.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

class TextPattern {
 public:
  static absl::StatusOr<TextPattern> Parse(const nlohmann::json& json);
  explicit TextPattern(std::string literal) : literal_(std::move(literal)) {}

  // As Pattern::FindAll. An empty literal matches nowhere.
  absl::Status FindAll(std::string_view text, PatternScratch& scratch,
                       std::vector<TextRange>* matches) const;

 private:
  TextPattern() = default;

  std::string literal_;
  std::shared_ptr<const Pattern> expression_;  // null: the literal
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_TEXT_PATTERN_H_
