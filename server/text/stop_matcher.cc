// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/text/detokenizer.h"

namespace rivulet {

absl::Status StopMatcher::Validate(const std::vector<std::string>& strings) {
  if (strings.size() > kMaxStrings) {
    return absl::InvalidArgumentError(absl::StrCat("stop.strings has ", strings.size(),
                                                   " entries; at most ", kMaxStrings,
                                                   " are allowed: send fewer"));
  }
  for (size_t i = 0; i < strings.size(); ++i) {
    const std::string name = absl::StrCat("stop.strings[", i, "]");
    if (strings[i].empty()) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is empty: leave it out"));
    }
    if (strings[i].size() > kMaxBytes) {
      return absl::InvalidArgumentError(absl::StrCat(name, " has ", strings[i].size(),
                                                     " bytes; at most ", kMaxBytes,
                                                     " are allowed: shorten it"));
    }
    if (ToUtf8(strings[i]) != strings[i]) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is not valid UTF-8"));
    }
  }
  return absl::OkStatus();
}

StopMatcher::StopMatcher(std::vector<std::string> strings, bool include_stop)
    : include_stop_(include_stop) {
  for (std::string& text : strings) patterns_.push_back(MakePattern(std::move(text)));
}

std::string StopMatcher::Append(std::string_view piece, bool may_stop) {
  if (matched_) return std::string();
  if (patterns_.empty()) return std::string(piece);
  for (char byte : piece) {
    held_ += byte;
    for (Pattern& pattern : patterns_) Advance(pattern, byte);
    if (!may_stop) continue;
    matched_ = LongestComplete();
    if (!matched_) continue;
    if (!include_stop_) held_.resize(held_.size() - matched_string().size());
    return std::exchange(held_, std::string());
  }
  const size_t keep = LongestPrefix();
  std::string text = held_.substr(0, held_.size() - keep);
  held_.erase(0, text.size());
  return text;
}

std::string StopMatcher::Finish() { return std::exchange(held_, std::string()); }

StopMatcher::Pattern StopMatcher::MakePattern(std::string text) {
  Pattern pattern{std::move(text), {0, 0}, 0};
  size_t border = 0;
  for (size_t i = 1; i < pattern.text.size(); ++i) {
    while (border != 0 && pattern.text[i] != pattern.text[border]) border = pattern.borders[border];
    if (pattern.text[i] == pattern.text[border]) ++border;
    pattern.borders.push_back(static_cast<uint16_t>(border));
  }
  return pattern;
}

void StopMatcher::Advance(Pattern& pattern, char byte) {
  size_t& length = pattern.length;
  if (length == pattern.text.size()) length = pattern.borders[length];
  while (length != 0 && pattern.text[length] != byte) length = pattern.borders[length];
  if (pattern.text[length] == byte) ++length;
}

std::optional<size_t> StopMatcher::LongestComplete() const {
  std::optional<size_t> best;
  for (size_t i = 0; i < patterns_.size(); ++i) {
    const bool complete = patterns_[i].length == patterns_[i].text.size();
    if (complete && (!best || patterns_[i].length > patterns_[*best].length)) best = i;
  }
  return best;
}

// How many bytes at the end of the text may still become a match. A complete match that was ignored
// (min_tokens) cannot, but its border can.
size_t StopMatcher::LongestPrefix() const {
  size_t longest = 0;
  for (const Pattern& pattern : patterns_) {
    const bool complete = pattern.length == pattern.text.size();
    longest = std::max(longest, complete ? pattern.borders[pattern.length] : pattern.length);
  }
  return longest;
}

}  // namespace rivulet
