// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Text on a terminal: what a model or another user wrote, made harmless; widths; short forms of
// numbers. Any thread, but for UseUtf8Locale.
#ifndef RIVULET_CLIENT_CLI_TEXT_H_
#define RIVULET_CLIENT_CLI_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rivulet::cli {

// `text` for a terminal. Whoever wrote it must not move the cursor, change colours or reorder what
// is read: control characters but newline and tab become ^X or <U+XXXX>, so do those that switch
// the direction of writing, and bytes that are not UTF-8 become U+FFFD. Everything else stays.
std::string TerminalSafe(std::string_view text);

// The same for one line of a table or message: newline and tab become visible too.
std::string OneLine(std::string_view text);

bool IsUtf8(std::string_view text);

// Columns that `text` takes, without control characters. The locale decides (setlocale LC_CTYPE).
size_t DisplayWidth(std::string_view text);

// `text` and spaces up to `width` columns; a longer one is cut and ends with "...".
std::string Padded(const std::string& text, size_t width);

// "1 token", "2 tokens".
std::string Counted(uint64_t count, const std::string& noun);

// "2.1 MiB", "512 B".
std::string Bytes(uint64_t bytes);

// "just now", "3 min ago", "2 h ago", "5 d ago"; "never" for a `then_unix_ms` of zero.
std::string Ago(int64_t then_unix_ms, int64_t now_unix_ms);

// Characters are UTF-8 on the wire: takes the user's locale for them if it is a UTF-8 one, else
// C.UTF-8. Once, before other threads.
void UseUtf8Locale();

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_TEXT_H_
