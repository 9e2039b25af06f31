// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/chat/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/text.h"

namespace rivulet::cli {
namespace {

bool WantsColours() {
  const char* const no_color = std::getenv("NO_COLOR");  // no-color.org: set and not empty
  const char* const terminal = std::getenv("TERM");
  const bool refused = no_color != nullptr && no_color[0] != '\0';
  return !refused && terminal != nullptr && std::string_view(terminal) != "dumb";
}

// Empty for a turn that has no finish reason.
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

// Asked anew each time, so that a resized window needs no signal; 0 if the terminal does not say.
size_t TerminalWidth() {
  winsize size{};
  const int terminal = isatty(STDOUT_FILENO) ? STDOUT_FILENO : STDERR_FILENO;
  return ioctl(terminal, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

Screen::Style Screen::StyleOfStandardStreams() {
  const bool messages_on_terminal = isatty(STDERR_FILENO) != 0;
  const bool text_on_terminal = isatty(STDOUT_FILENO) != 0;
  return {.text_on_terminal = text_on_terminal,
          .messages_on_terminal = messages_on_terminal,
          .colours = messages_on_terminal && WantsColours(),
          .dims_thinking = text_on_terminal && WantsColours(),
          .width = &TerminalWidth};
}

bool Screen::Text(const std::string& text) {
  if (style_.dims_thinking) return PrintParts(thinking_.Add(text));
  return Print(style_.text_on_terminal ? wrap_.Add(TerminalSafe(text), style_.width()) : text);
}

bool Screen::Print(const std::string& text) {
  if (text.empty()) return true;
  line_open_ = text.back() != '\n';
  return cli::Print(text, output_);
}

bool Screen::PrintParts(const std::vector<ThinkingSplitter::Part>& parts) {
  bool open = true;
  for (const ThinkingSplitter::Part& part : parts) {
    SetDim(part.thinking);
    open = Print(wrap_.Add(TerminalSafe(part.text), style_.width()));
  }
  return open;
}

// Colours are not counted in the width of a line, so they do not go through the wrapping.
void Screen::SetDim(bool dim) {
  if (dim == dim_) return;
  Print(wrap_.Finish());
  cli::Print(dim ? "\033[2m" : "\033[0m", output_);
  dim_ = dim;
}

void Screen::EndText() {
  PrintParts(thinking_.Finish());
  Print(wrap_.Finish());
  SetDim(false);
  if (line_open_) Print("\n");
}

void Screen::Table(const std::string& table) { cli::Print(table, output_); }

void Screen::Note(const std::string& note) { Line("\033[2m", note); }

void Screen::TurnSummary(const TurnNumbers& turn) {
  if (style_.messages_on_terminal) return Note(absl::StrCat("[", Summary(turn), "]"));
  if (turn.cache.has_value()) Note(absl::StrCat("prefix cache: ", CacheText(*turn.cache)));
}

void Screen::Error(const std::string& message) { Line("\033[31m", "error: " + message); }

void Screen::Error(const absl::Status& status) { Error(ErrorText(status)); }

void Screen::Line(const char* colour, const std::string& line) {
  EndText();
  const size_t width = style_.messages_on_terminal ? style_.width() : 0;
  const std::string shown = Wrapped(OneLine(line), width);
  cli::Print(style_.colours ? absl::StrCat(colour, shown, "\033[0m\n") : shown + "\n", messages_);
}

std::string Summary(const TurnNumbers& turn) {
  std::string summary = Counted(turn.usage.completion_tokens(), "token");
  if (turn.tokens_per_second > 0) {
    absl::StrAppendFormat(&summary, ", %.1f tokens/s", turn.tokens_per_second);
  }
  absl::StrAppendFormat(&summary, ", %u cached, first token %.0f ms", turn.usage.cached_tokens(),
                        turn.first_token_seconds * 1e3);
  if (turn.cache.has_value()) absl::StrAppend(&summary, ", ", CacheText(*turn.cache));
  if (turn.rewritten_tokens > 0) {
    absl::StrAppend(&summary, ", the template rewrote earlier turns (",
                    Counted(turn.rewritten_tokens, "token"), " computed anew)");
  }
  const std::string finish = FinishText(turn);
  return finish.empty() ? summary : summary + ", " + finish;
}

}  // namespace rivulet::cli
