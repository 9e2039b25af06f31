// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Wraps text that streams to a terminal at word boundaries. A word is held back until it is
// complete, since only then is it known whether it fits on the line. Characters that take two
// columns (Chinese, Japanese, Korean, emoji) may be separated anywhere. A word that is longer than
// a line is broken at the edge.
//
// The text must be safe for a terminal (TerminalSafe). Widths are those of the locale.
// Threading: one thread.
#ifndef RIVULET_CLIENT_CLI_CHAT_WORD_WRAP_H_
#define RIVULET_CLIENT_CLI_CHAT_WORD_WRAP_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace rivulet::cli {

class WordWrap {
 public:
  // Returns what can be printed once `text`, which holds whole characters, follows the text so far.
  // `width` is the terminal's width in columns now; 0: no limit. White space at a wrapped line's
  // end is dropped.
  std::string Add(std::string_view text, size_t width);

  // Returns what is held back, without white space at the end. The next text begins a line.
  std::string Finish();

 private:
  void AddCharacter(std::string_view character, std::string& out);
  void AddSpace(std::string_view space, std::string& out);
  void AddToWord(std::string_view character, size_t columns, std::string& out);
  void PlaceWord(std::string& out);
  void BreakLine(std::string& out);

  size_t width_ = 0;
  size_t column_ = 0;  // columns printed of the current line
  std::string space_;  // white space before the word
  size_t space_columns_ = 0;
  std::string word_;
  size_t word_columns_ = 0;
};

// `text` wrapped to `width` columns; 0: unchanged.
std::string Wrapped(std::string_view text, size_t width);

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_CHAT_WORD_WRAP_H_
