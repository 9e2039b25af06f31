// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What `rivulet chat` prints: the model's text and tables to standard output, everything else to
// standard error. Text on a terminal is escaped, so that no model, server or other user can control
// it, and wrapped at its width. A file or pipe gets the model's text byte for byte.
//
// Threading: one thread.
#ifndef RIVULET_CLIENT_CLI_CHAT_SCREEN_H_
#define RIVULET_CLIENT_CLI_CHAT_SCREEN_H_

#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/chat/conversation.h"
#include "client/cli/chat/thinking.h"
#include "client/cli/chat/word_wrap.h"

namespace rivulet::cli {

class Screen {
 public:
  struct Style {
    bool text_on_terminal = false;      // standard output
    bool messages_on_terminal = false;  // standard error
    bool colours = false;               // of messages
    bool dims_thinking = false;         // of text: what stands between <think> and </think>
    // Columns of the terminal, asked before each text; 0: no wrapping.
    std::function<size_t()> width = [] { return size_t{0}; };
  };
  // The files are borrowed.
  Screen(FILE* output, FILE* messages, Style style)
      : output_(output), messages_(messages), style_(std::move(style)) {}

  // From standard output, standard error, TERM and NO_COLOR.
  static Style StyleOfStandardStreams();

  // A text begins, within a <think> or not.
  void BeginText(bool thinking) { thinking_.Begin(thinking); }
  // The model's text; on a terminal, its last word is printed once it is complete. False if
  // standard output is closed.
  bool Text(const std::string& text);
  // Completes the text, and its last line if it is open.
  void EndText();

  void Table(const std::string& table);  // already safe, ends with a newline
  void Note(const std::string& note);    // dim
  // "[24 tokens, ...]", dim; if it is not for a terminal, only what the prefix cache had.
  void TurnSummary(const TurnNumbers& turn);
  void Error(const std::string& message);  // "error: " and the message
  void Error(const absl::Status& status);  // with its code

 private:
  bool Print(const std::string& text);
  bool PrintParts(const std::vector<ThinkingSplitter::Part>& parts);
  void SetDim(bool dim);
  void Line(const char* colour, const std::string& line);

  FILE* const output_;
  FILE* const messages_;
  const Style style_;
  WordWrap wrap_;
  ThinkingSplitter thinking_;
  bool dim_ = false;
  bool line_open_ = false;
};

// "24 tokens, 180.2 tokens/s, 31 cached, first token 12 ms, length limit". The rate is left out if
// it could not be measured, the reason if the turn ended by itself.
std::string Summary(const TurnNumbers& turn);

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_CHAT_SCREEN_H_
