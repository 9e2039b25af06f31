// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/chat/thinking.h"

#include <algorithm>
#include <utility>

namespace rivulet::cli {
namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>";

// How many bytes at the end of `text` may be the beginning of `mark`.
size_t BeginningAtEnd(std::string_view text, std::string_view mark) {
  size_t bytes = std::min(text.size(), mark.size() - 1);
  while (bytes > 0 && !text.ends_with(mark.substr(0, bytes))) --bytes;
  return bytes;
}

}  // namespace

void ThinkingSplitter::Begin(bool thinking) {
  thinking_ = thinking;
  held_.clear();
}

void ThinkingSplitter::Append(std::string_view text, std::vector<Part>& parts) const {
  if (text.empty()) return;
  const bool same = !parts.empty() && parts.back().thinking == thinking_;
  if (!same) parts.push_back({"", thinking_});
  parts.back().text += text;
}

std::vector<ThinkingSplitter::Part> ThinkingSplitter::Add(std::string_view piece) {
  const std::string text = std::exchange(held_, "") + std::string(piece);
  std::vector<Part> parts;
  size_t begin = 0;
  while (true) {
    const std::string_view rest = std::string_view(text).substr(begin);
    const std::string_view mark = thinking_ ? kClose : kOpen;
    const size_t place = rest.find(mark);
    if (place == std::string_view::npos) {
      const size_t held = BeginningAtEnd(rest, mark);
      Append(rest.substr(0, rest.size() - held), parts);
      held_ = rest.substr(rest.size() - held);
      return parts;
    }
    if (thinking_) {
      Append(rest.substr(0, place + mark.size()), parts);
    } else {
      Append(rest.substr(0, place), parts);
    }
    begin += thinking_ ? place + mark.size() : place;
    thinking_ = !thinking_;
    if (!thinking_) continue;
    Append(mark, parts);
    begin += mark.size();
  }
}

std::vector<ThinkingSplitter::Part> ThinkingSplitter::Finish() {
  std::vector<Part> parts;
  Append(std::exchange(held_, ""), parts);
  return parts;
}

}  // namespace rivulet::cli
