// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The "post_processor" of a tokenizer.json: the tokens it puts before and behind a text (BOS, EOS,
// [CLS]). Pairs of texts and type ids are not for us and are not read.
//
// Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_POST_PROCESSOR_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_POST_PROCESSOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

struct SurroundingTokens {
  std::vector<uint32_t> before, after;
};

// Nothing for JSON null. Ids are below `end_id`, else INVALID_ARGUMENT; an unknown kind is
// UNIMPLEMENTED and named.
absl::StatusOr<SurroundingTokens> ParsePostProcessor(const nlohmann::json& json, size_t end_id);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_POST_PROCESSOR_H_
