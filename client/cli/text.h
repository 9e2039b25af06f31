// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Text on a terminal: escaping what a model or another user wrote; widths; short forms of numbers.
//
// Threading: any thread, except UseUtf8Locale.
#ifndef RIVULET_CLIENT_CLI_TEXT_H_
#define RIVULET_CLIENT_CLI_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rivulet::cli {

// `text` for a terminal, so that it cannot move the cursor, change colours or reorder what is read:
// control characters except newline and tab become ^X or <U+XXXX>, as do characters that switch the
// writing direction, and bytes that are not UTF-8 become U+FFFD. Everything else is unchanged.
std::string TerminalSafe(std::string_view text);

// The same for one line of a table or message: newline and tab are escaped too.
std::string OneLine(std::string_view text);

bool IsUtf8(std::string_view text);

// The bytes of the first character of `text`, or one byte that is not UTF-8; empty for none.
std::string_view FirstCharacter(std::string_view text);

// Columns that `text` takes on a terminal (wcwidth in the locale of LC_CTYPE); it has no control
// characters.
size_t DisplayWidth(std::string_view text);

// `text` and spaces up to `width` columns; a longer one is cut and ends with "...".
std::string Padded(const std::string& text, size_t width);

// "1 token", "2 tokens".
std::string Counted(uint64_t count, const std::string& noun);

// "2.1 MiB", "512 B".
std::string Bytes(uint64_t bytes);

// "just now", "3 min ago", "2 h ago", "5 d ago"; "never" for a `then_unix_ms` of zero.
std::string Ago(int64_t then_unix_ms, int64_t now_unix_ms);

// Sets LC_CTYPE to the user's locale if that is a UTF-8 one, else to C.UTF-8, since text on the
// wire is UTF-8. Call it once, before other threads start.
void UseUtf8Locale();

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_TEXT_H_
