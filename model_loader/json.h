// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// JSON files of a checkpoint directory, read without exceptions and without trust.
//
// Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_JSON_H_
#define RIVULET_MODEL_LOADER_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// Deeper nesting is refused: much of a JSON library recurses.
inline constexpr size_t kDeepestJson = 64;

// Parses JSON text that may hold the bare tokens Infinity, -Infinity and NaN, as Python writes them
// (docs/mixers.md#mamba-2); they become {"__float__": "Infinity"} as transformers 5 writes them.
// INVALID_ARGUMENT names the file, line and column. `file_name` is for messages.
absl::StatusOr<nlohmann::json> ParseJson(const std::string& text, const std::string& file_name);

// The same for a file. NOT_FOUND when there is none; INVALID_ARGUMENT when it is longer than
// `most_bytes` or no JSON object.
absl::StatusOr<nlohmann::json> ReadJsonObject(const std::string& path, size_t most_bytes);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_JSON_H_
