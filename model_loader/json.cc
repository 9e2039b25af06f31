// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/json.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "model_loader/mapped_file.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

constexpr std::string_view kPythonFloats[] = {"-Infinity", "Infinity", "NaN"};

// The bare token that starts at `place`, or nothing.
std::string_view PythonFloatAt(const std::string& text, size_t place) {
  const char first = text[place];
  if (first != '-' && first != 'I' && first != 'N') return {};
  for (const std::string_view name : kPythonFloats) {
    if (text.compare(place, name.size(), name) == 0) return name;
  }
  return {};
}

// The text with Python's bare tokens, outside of strings, replaced by objects. Sets `depth` to that
// of its deepest nesting, and stops where that is too deep.
std::string ReplacePythonFloats(const std::string& text, size_t& depth) {
  std::string result;
  result.reserve(text.size());
  bool in_string = false;
  size_t open = depth = 0;
  for (size_t i = 0; i < text.size() && depth <= kDeepestJson;) {
    const std::string_view name = in_string ? std::string_view() : PythonFloatAt(text, i);
    if (!name.empty()) {
      absl::StrAppend(&result, "{\"__float__\": \"", ToAbsl(name), "\"}");
      i += name.size();
      continue;
    }
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (!in_string && (c == '{' || c == '[')) depth = std::max(depth, ++open);
    if (!in_string && (c == '}' || c == ']') && open > 0) --open;
    if (in_string && c == '\\' && i + 1 < text.size()) result += text[i++];
    result += text[i++];
  }
  return result;
}

// For a terminal: the parser's messages quote what the file has.
std::string Printable(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c >= ' ' && c <= '~') {
      result += c;
    } else {
      absl::StrAppend(&result, "\\x", absl::Hex(static_cast<uint8_t>(c), absl::kZeroPad2));
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<json> ParseJson(const std::string& text, const std::string& file_name) {
  size_t depth = 0;
  const std::string plain = ReplacePythonFloats(text, depth);
  std::string problem;
  if (depth > kDeepestJson) {
    problem = absl::StrCat("it is nested deeper than ", kDeepestJson, " levels");
  } else {
    try {
      return json::parse(plain);
    } catch (const json::exception& error) {
      const std::string_view what = error.what();
      problem = Printable(what.substr(what.find("] ") + 2));  // "[json.exception.parse_error.101] "
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(file_name, " is not valid JSON: ", problem));
}

absl::StatusOr<json> ReadJsonObject(const std::string& path, size_t most_bytes) {
  RIVULET_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  if (file->bytes().size() > most_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", file->bytes().size(), " bytes, the limit is ", most_bytes));
  }
  const std::string text(file->bytes().begin(), file->bytes().end());
  RIVULET_ASSIGN_OR_RETURN(json value, ParseJson(text, path));
  if (value.is_object()) return value;
  return absl::InvalidArgumentError(absl::StrCat(path, " does not contain a JSON object {...}"));
}

}  // namespace rivulet
