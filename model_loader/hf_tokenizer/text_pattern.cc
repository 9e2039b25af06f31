// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/text_pattern.h"

#include "kernels/base/status.h"
#include "model_loader/config_reader.h"
#include "nlohmann/json.hpp"

namespace rivulet {

absl::StatusOr<TextPattern> TextPattern::Parse(const nlohmann::json& json) {
  ConfigReader reader(json);
  TextPattern pattern;
  if (reader.Has("Regex")) {
    const std::string expression = reader.String("Regex");
    RIVULET_RETURN_IF_ERROR(reader.status());
    RIVULET_ASSIGN_OR_RETURN(pattern.expression_, Pattern::Compile(expression));
  } else {
    pattern.literal_ = reader.String("String");
    RIVULET_RETURN_IF_ERROR(reader.status());
  }
  return pattern;
}

absl::Status TextPattern::FindAll(std::string_view text, PatternScratch& scratch,
                                  std::vector<TextRange>* matches) const {
  if (expression_ != nullptr) return expression_->FindAll(text, scratch, matches);
  if (literal_.empty()) return absl::OkStatus();
  for (size_t i = text.find(literal_); i != std::string_view::npos;
       i = text.find(literal_, i + literal_.size())) {
    matches->push_back({i, i + literal_.size()});
  }
  return absl::OkStatus();
}

}  // namespace rivulet
