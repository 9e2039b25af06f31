// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/vocabulary.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/strings.h"

namespace rivulet {

absl::Status Vocabulary::Add(std::string_view token, uint64_t id) {
  if (id >= kMostTokens) {
    return absl::InvalidArgumentError(absl::StrCat("the token \"", ToAbsl(token), "\" has id ", id,
                                                   ", beyond the limit of ", kMostTokens));
  }
  if (Has(static_cast<uint32_t>(id)) && tokens_[id] != token) {
    return absl::InvalidArgumentError(absl::StrCat("the tokens \"", ToAbsl(tokens_[id]),
                                                   "\" and \"", ToAbsl(token),
                                                   "\" have the same id, ", id));
  }
  if (ids_.contains(token)) return absl::OkStatus();
  if (id >= tokens_.size()) {
    tokens_.resize(id + 1);
    has_.resize(id + 1);
  }
  tokens_[id] = storage_.emplace_back(token);
  has_[id] = true;
  ids_.emplace(tokens_[id], static_cast<uint32_t>(id));
  return absl::OkStatus();
}

}  // namespace rivulet
