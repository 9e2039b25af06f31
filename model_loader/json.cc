// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/json.h"

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
  for (const std::string_view name : kPythonFloats) {
    if (text.compare(place, name.size(), name) == 0) return name;
  }
  return {};
}

// The text with Python's bare tokens, outside of strings, replaced by objects.
std::string ReplacePythonFloats(const std::string& text) {
  std::string result;
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    const std::string_view name = in_string ? std::string_view() : PythonFloatAt(text, i);
    if (!name.empty()) {
      absl::StrAppend(&result, "{\"__float__\": \"", ToAbsl(name), "\"}");
      i += name.size();
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    if (in_string && text[i] == '\\' && i + 1 < text.size()) result += text[i++];
    result += text[i++];
  }
  return result;
}

// Reads through the text and keeps nothing but the first problem.
class Validator : public nlohmann::json_sax<json> {
 public:
  const std::string& error() const { return error_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(size_t) override { return Enter(); }
  bool start_array(size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool end_array() override { return Leave(); }
  bool parse_error(size_t, const std::string&,
                   const nlohmann::detail::exception& exception) override {
    const std::string_view message = exception.what();
    error_ = message.substr(message.find("] ") + 2);  // without "[json.exception.parse_error.101] "
    return false;
  }

 private:
  bool Enter() {
    if (++depth_ <= kDeepestJson) return true;
    error_ = absl::StrCat("it is nested deeper than ", kDeepestJson, " levels");
    return false;
  }
  bool Leave() {
    --depth_;
    return true;
  }

  size_t depth_ = 0;
  std::string error_;
};

}  // namespace

absl::StatusOr<json> ParseJson(const std::string& text, const std::string& file_name) {
  const std::string plain = ReplacePythonFloats(text);
  Validator validator;
  if (!json::sax_parse(plain, &validator)) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, " is not valid JSON: ", validator.error()));
  }
  return json::parse(plain, nullptr, false);
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
