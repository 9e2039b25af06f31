// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/text/thinking_splitter.h"

#include <algorithm>
#include <utility>

namespace rivulet {
namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>";
constexpr const char* kSpaces = " \t\r\n";

// How many bytes at the end of `text` may be the beginning of `mark`.
size_t BeginningAtEnd(std::string_view text, std::string_view mark) {
  size_t bytes = std::min(text.size(), mark.size() - 1);
  while (bytes > 0 && !text.ends_with(mark.substr(0, bytes))) --bytes;
  return bytes;
}

}  // namespace

ThinkingSplitter::Parts ThinkingSplitter::Add(std::string_view piece) {
  held_ += piece;
  Parts parts;
  while (!held_.empty() && Step(parts)) continue;
  return parts;
}

ThinkingSplitter::Parts ThinkingSplitter::Finish() {
  Parts parts;
  const bool thinks = phase_ == Phase::kThinks || phase_ == Phase::kThinkingBegins;
  (thinks ? parts.thinking : parts.answer) = std::exchange(held_, "");
  phase_ = Phase::kAnswers;
  return parts;
}

bool ThinkingSplitter::Step(Parts& parts) {
  switch (phase_) {
    case Phase::kBegins:
      return FindOpening(parts);
    case Phase::kThinkingBegins:
      return SkipLineEnds(Phase::kThinks);
    case Phase::kThinks:
      return FindClosing(parts);
    case Phase::kAnswerBegins:
      return SkipLineEnds(Phase::kAnswers);
    default:
      parts.answer += std::exchange(held_, "");
      return false;
  }
}

bool ThinkingSplitter::FindOpening(Parts& parts) {
  const size_t text = held_.find_first_not_of(kSpaces);
  if (text == std::string::npos) return false;
  const std::string_view rest = std::string_view(held_).substr(text);
  if (rest.size() < kOpen.size() && kOpen.starts_with(rest)) return false;
  if (rest.starts_with(kOpen)) {
    held_.erase(0, text + kOpen.size());
    phase_ = Phase::kThinkingBegins;
    return true;
  }
  parts.answer += std::exchange(held_, "");
  phase_ = Phase::kAnswers;
  return false;
}

bool ThinkingSplitter::SkipLineEnds(Phase next) {
  const size_t text = held_.find_first_not_of('\n');
  held_.erase(0, text);
  if (held_.empty()) return false;
  phase_ = next;
  return true;
}

bool ThinkingSplitter::FindClosing(Parts& parts) {
  const size_t place = held_.find(kClose);
  const bool closes = place != std::string::npos;
  const size_t thought = closes ? place : held_.size() - BeginningAtEnd(held_, kClose);
  parts.thinking += held_.substr(0, thought);
  held_.erase(0, closes ? place + kClose.size() : thought);
  if (closes) phase_ = Phase::kAnswerBegins;
  return closes;
}

}  // namespace rivulet
