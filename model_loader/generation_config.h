// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The small JSON files beside config.json. Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_GENERATION_CONFIG_H_
#define RIVULET_MODEL_LOADER_GENERATION_CONFIG_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model_loader/loaded_model.h"

namespace rivulet {

// generation_config.json of `directory`; all unset when there is none. Values that a request may
// not have either are refused. do_sample is ignored: a model's temperature counts whether its
// library samples by default or not. Its eos_token_id joins spec.eos_ids, as chat models list more
// there.
absl::StatusOr<GenerationDefaults> ReadGenerationDefaults(const std::string& directory,
                                                          ModelSpec& spec);

// chat_template.jinja exists, or tokenizer_config.json has a chat_template.
absl::StatusOr<bool> HasChatTemplate(const std::string& directory);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_GENERATION_CONFIG_H_
