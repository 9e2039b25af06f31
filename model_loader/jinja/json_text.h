// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// JSON ↔ values, as Python's json module reads and writes them: the order of keys is kept, 1
// and 1.0 stay different, a later key replaces an equal earlier one.
//
// Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_JINJA_JSON_TEXT_H_
#define RIVULET_MODEL_LOADER_JINJA_JSON_TEXT_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model_loader/jinja/value.h"

namespace rivulet::jinja {

// INVALID_ARGUMENT for text that is not JSON, is not UTF-8, or nests deeper than kDeepestValue;
// `what` names the text in the message. `plain`: all of its strings are, keys too.
absl::StatusOr<Value> ParseJsonValue(std::string_view text, std::string_view what,
                                     bool plain = false);

struct JsonStyle {
  std::optional<std::string> indent;  // of one level; none: everything on one line
  std::string between_items = ", ";
  std::string after_key = ": ";
  bool only_ascii = false;
  bool sort_keys = false;
};

// json.dumps(value), appended. INVALID_ARGUMENT for a value that JSON does not have, and for more
// than `most` bytes.
absl::Status AppendJson(const Value& value, const JsonStyle& style, size_t most, std::string& text);

}  // namespace rivulet::jinja

#endif  // RIVULET_MODEL_LOADER_JINJA_JSON_TEXT_H_
