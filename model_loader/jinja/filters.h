// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What filters, methods and functions share. Threading: of one rendering, one thread.
#ifndef RIVULET_MODEL_LOADER_JINJA_FILTERS_H_
#define RIVULET_MODEL_LOADER_JINJA_FILTERS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model_loader/jinja/callable.h"

namespace rivulet::jinja {

// Null if there is none by that name.
const Builtin* FindIn(std::span<const Builtin> builtins, std::string_view name);
const Builtin* FindSequenceFilter(std::string_view name);

// str.replace; `most` < 0: all.
absl::StatusOr<MarkedText> ReplaceText(Runtime& runtime, const MarkedText& text,
                                       std::string_view old_text, const MarkedText& new_text,
                                       int64_t most);
// Filled up to `width` characters on the right ('<'), the left ('>') or both sides ('^').
absl::StatusOr<std::string> JustifyText(Runtime& runtime, std::string_view text, int64_t width,
                                        std::string_view fill, char align);
// int(value), as the filter tries it; none if Python raises.
std::optional<Value> ToInteger(Runtime& runtime, const Value& value, int64_t base);
std::optional<double> ToFloat(const Value& value);

// A namespace takes no name that begins with an underscore, as in transformers.
absl::Status CheckNamespaceName(std::string_view name);

// strftime of the local time.
std::string FormatTime(int64_t unix_seconds, int32_t microseconds, const std::string& format);

}  // namespace rivulet::jinja

#endif  // RIVULET_MODEL_LOADER_JINJA_FILTERS_H_
