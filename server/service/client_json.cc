// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/service/client_json.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/security/repeated_keys.h"

namespace rivulet {
namespace {

using Limits = ClientJsonLimits;

// What the limits count, found without parsing: text that is not JSON may pass, and is refused by
// the parser.
class Counts {
 public:
  // Null, or which limit the text is beyond.
  const char* Scan(std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '"') i = EndOfString(text, i);
      const char* const problem = i < text.size() ? Add(text[i]) : nullptr;
      if (problem != nullptr) return problem;
    }
    return nullptr;
  }

 private:
  static size_t EndOfString(std::string_view text, size_t quote) {
    size_t i = quote + 1;
    while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
    return i;
  }

  const char* Add(char c) {
    if (c == '{' || c == '[') {
      if (open_keys_.size() == Limits::kDeepest) return "is nested too deeply";
      open_keys_.push_back(0);
    }
    if ((c == '}' || c == ']') && !open_keys_.empty()) open_keys_.pop_back();
    if (c == ',' || c == '{' || c == '[') ++values_;
    if (c == ':') {
      ++keys_;
      if (!open_keys_.empty() && ++open_keys_.back() > Limits::kMostKeysOfAnObject) {
        return "has an object with too many keys";
      }
    }
    if (keys_ > Limits::kMostKeys) return "has too many keys";
    return values_ > Limits::kMostValues ? "has too many values" : nullptr;
  }

  std::vector<size_t> open_keys_;  // of each open object or array
  size_t keys_ = 0;
  size_t values_ = 0;
};

// Without the name that the library puts before ("[json.exception.parse_error.101] parse error
// ...") and the last token that it read: errors are logged, and prompts are not.
std::string Explanation(const char* what) {
  std::string text(what);
  text.resize(std::min(text.size(), text.find("; last read: ")));
  const size_t end = text.find("] ");
  return text.substr(end == std::string::npos ? 0 : end + 2);
}

}  // namespace

absl::StatusOr<ClientJson> ParseClientJson(std::string_view text, const std::string& what) {
  const char* const problem = Counts().Scan(text);
  if (problem != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " ", problem, ": at most ", Limits::kDeepest, " levels, ",
                     Limits::kMostValues, " values, ", Limits::kMostKeys, " keys and ",
                     Limits::kMostKeysOfAnObject, " of one object are read"));
  }
  // The library takes it for the end of the text.
  if (text.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is not JSON: it has a byte 0"));
  }
  try {
    RepeatedKeys keys;
    std::optional<std::string> twice;
    ClientJson json = ClientJson::parse(
        text, [&](int, ClientJson::parse_event_t event, const ClientJson& parsed) {
          if (keys.See(event, parsed) && !twice.has_value()) twice = parsed.get<std::string>();
          return true;
        });
    if (!twice.has_value()) return json;
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": the key \"", twice->substr(0, 100),
        "\" is twice in an object: programs disagree about which of them counts; send it once"));
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is not JSON: ", Explanation(error.what())));
  }
}

}  // namespace rivulet
