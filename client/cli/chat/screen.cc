// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/chat/screen.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "client/cli/support.h"
#include "client/cli/text.h"

namespace rivulet::cli {
namespace {

bool WantsColours() {
  const char* const no_color = std::getenv("NO_COLOR");  // no-color.org: set and not empty
  const char* const terminal = std::getenv("TERM");
  const bool refused = no_color != nullptr && no_color[0] != '\0';
  return !refused && terminal != nullptr && std::string_view(terminal) != "dumb";
}

// Empty for an end that needs no explanation.
std::string FinishText(const TurnNumbers& turn) {
  switch (turn.finish_reason) {
    case v1::FINISH_REASON_STOP:
      return turn.matched_stop.empty() ? "stop token" : "stopped before " + turn.matched_stop;
    case v1::FINISH_REASON_LENGTH:
      return "length limit";
    case v1::FINISH_REASON_CANCELLED:
      return "stopped by you";
    case v1::FINISH_REASON_DEADLINE:
      return "time limit";
    case v1::FINISH_REASON_EOS:
      return "end of text";
    default:
      return turn.finish_reason == v1::FINISH_REASON_UNSPECIFIED ? "" : "failed";
  }
}

}  // namespace

Screen::Style Screen::StyleOfStandardStreams() {
  return {.safe_text = isatty(STDOUT_FILENO) != 0,
          .colours = isatty(STDERR_FILENO) != 0 && WantsColours()};
}

bool Screen::Text(const std::string& text) {
  if (text.empty()) return true;
  const std::string shown = style_.safe_text ? TerminalSafe(text) : text;
  line_open_ = shown.back() != '\n';
  return std::fwrite(shown.data(), 1, shown.size(), output_) == shown.size() &&
         std::fflush(output_) == 0;
}

void Screen::EndText() {
  if (line_open_) std::fputc('\n', output_);
  std::fflush(output_);
  line_open_ = false;
}

void Screen::Table(const std::string& table) {
  std::fwrite(table.data(), 1, table.size(), output_);
  std::fflush(output_);
}

void Screen::Note(const std::string& note) { Line("\033[2m", note); }

void Screen::Error(const std::string& message) { Line("\033[31m", "error: " + message); }

void Screen::Error(const absl::Status& status) { Error(ErrorText(status)); }

void Screen::Line(const char* colour, const std::string& line) {
  EndText();
  const std::string shown = OneLine(line);
  const bool coloured = style_.colours;
  std::fprintf(messages_, "%s%s%s\n", coloured ? colour : "", shown.c_str(),
               coloured ? "\033[0m" : "");
  std::fflush(messages_);
}

std::string Summary(const TurnNumbers& turn) {
  char text[160];
  int length = 0;
  std::string summary = Counted(turn.usage.completion_tokens(), "token");
  if (turn.tokens_per_second > 0) {
    length = std::snprintf(text, sizeof text, ", %.1f tokens/s", turn.tokens_per_second);
    summary.append(text, static_cast<size_t>(length));
  }
  length = std::snprintf(text, sizeof text, ", %u cached, first token %.0f ms",
                         turn.usage.cached_tokens(), turn.first_token_seconds * 1e3);
  summary.append(text, static_cast<size_t>(length));
  const std::string finish = FinishText(turn);
  return finish.empty() ? summary : summary + ", " + finish;
}

}  // namespace rivulet::cli
