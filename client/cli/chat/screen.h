// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What `rivulet chat` prints: the model's text and tables to standard output, all else to standard
// error. Nothing that a model, a server or another user wrote can drive the terminal.
//
// Threading: one thread.
#ifndef RIVULET_CLIENT_CLI_CHAT_SCREEN_H_
#define RIVULET_CLIENT_CLI_CHAT_SCREEN_H_

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "client/cli/chat/conversation.h"

namespace rivulet::cli {

class Screen {
 public:
  struct Style {
    bool safe_text = true;  // standard output is a terminal
    bool colours = false;   // standard error is one that shows them
  };
  // The files are borrowed.
  Screen(FILE* output, FILE* messages, Style style)
      : output_(output), messages_(messages), style_(style) {}

  // Of what standard output and standard error are, TERM and NO_COLOR.
  static Style StyleOfStandardStreams();

  // The model's text, at once. False once nobody reads it.
  bool Text(const std::string& text);
  // Ends the line that Text left open, if one is.
  void EndText();

  void Table(const std::string& table);    // already safe, ends with a newline
  void Note(const std::string& note);      // one line, dim
  void Error(const std::string& message);  // "error: " and one line
  void Error(const absl::Status& status);  // with its code

 private:
  void Line(const char* colour, const std::string& line);

  FILE* const output_;
  FILE* const messages_;
  const Style style_;
  bool line_open_ = false;
};

// "24 tokens, 180.2 tokens/s, 31 cached, first token 12 ms, length limit". What is missing or
// natural is left out.
std::string Summary(const TurnNumbers& turn);

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_CHAT_SCREEN_H_
