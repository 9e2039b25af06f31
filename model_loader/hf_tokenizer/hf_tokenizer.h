// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// tokenizer.json of the `tokenizers` package (docs/tokenizers.md): the same ids, and the same text
// from ids.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_HF_TOKENIZER_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_HF_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model_loader/tokenizer.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// From the parsed files. `config`: tokenizer_config.json, `special_tokens`:
// special_tokens_map.json; each an empty object if there is none. UNIMPLEMENTED names what is not
// supported, INVALID_ARGUMENT what is wrong. The result keeps nothing of the arguments.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeHfTokenizer(const nlohmann::json& tokenizer,
                                                           const nlohmann::json& config,
                                                           const nlohmann::json& special_tokens);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_HF_TOKENIZER_H_
