// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/text.h"

#include <langinfo.h>
#include <wchar.h>

#include <algorithm>
#include <clocale>

#include "absl/strings/str_format.h"
#include "kernels/base/utf8.h"

namespace rivulet::cli {
namespace {

// Includes the C1 controls: some terminals take U+009B for ESC [.
bool IsControl(char32_t code) { return code < 0x20 || (code >= 0x7F && code < 0xA0); }

// Line and paragraph separators, marks, embeddings, overrides and isolates.
bool ReordersText(char32_t code) {
  return code == 0x061C || code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

std::string Visible(char32_t code) {
  if (code < 0x20) return {'^', static_cast<char>(code + 0x40)};
  if (code == 0x7F) return "^?";
  return absl::StrFormat("<U+%04X>", static_cast<unsigned>(code));
}

std::string MakeSafe(std::string_view text, bool keep_layout) {
  std::string safe;
  while (!text.empty()) {
    const Utf8Character c = FirstUtf8Character(text);
    const bool layout = c.code == '\n' || c.code == '\t';
    if (!c.valid) {
      safe += "\xEF\xBF\xBD";
    } else if ((IsControl(c.code) && !(layout && keep_layout)) || ReordersText(c.code)) {
      safe += Visible(c.code);
    } else {
      safe += text.substr(0, c.bytes);
    }
    text.remove_prefix(c.bytes);
  }
  return safe;
}

size_t Width(const Utf8Character& c) {
  const int width = wcwidth(static_cast<wchar_t>(c.code));
  return width < 0 ? 1 : static_cast<size_t>(width);
}

// The longest prefix of `text` that fits into `width` columns.
std::string_view Prefix(std::string_view text, size_t width) {
  size_t bytes = 0;
  while (bytes < text.size()) {
    const Utf8Character c = FirstUtf8Character(text.substr(bytes));
    if (Width(c) > width) break;
    width -= Width(c);
    bytes += c.bytes;
  }
  return text.substr(0, bytes);
}

}  // namespace

std::string TerminalSafe(std::string_view text) { return MakeSafe(text, /*keep_layout=*/true); }
std::string OneLine(std::string_view text) { return MakeSafe(text, /*keep_layout=*/false); }

std::string_view FirstCharacter(std::string_view text) {
  return text.empty() ? text : text.substr(0, FirstUtf8Character(text).bytes);
}

bool IsUtf8(std::string_view text) { return ValidUtf8Length(text) == text.size(); }

size_t DisplayWidth(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const Utf8Character c = FirstUtf8Character(text);
    width += Width(c);
    text.remove_prefix(c.bytes);
  }
  return width;
}

std::string Padded(const std::string& text, size_t width) {
  const size_t taken = DisplayWidth(text);
  if (taken <= width) return text + std::string(width - taken, ' ');
  const std::string dots(std::min<size_t>(width, 3), '.');
  const std::string_view prefix = Prefix(text, width - dots.size());
  return Padded(std::string(prefix) + dots, width);
}

std::string Counted(uint64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string Bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit < 3; ++unit) value /= 1024;
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string Ago(int64_t then_unix_ms, int64_t now_unix_ms) {
  if (then_unix_ms == 0) return "never";
  const int64_t seconds = (now_unix_ms - then_unix_ms) / 1000;
  if (seconds < 10) return "just now";  // also where the clocks disagree
  if (seconds < 120) return std::to_string(seconds) + " s ago";
  if (seconds < 120 * 60) return std::to_string(seconds / 60) + " min ago";
  if (seconds < 48 * 3600) return std::to_string(seconds / 3600) + " h ago";
  return std::to_string(seconds / 86400) + " d ago";
}

void UseUtf8Locale() {
  if (std::setlocale(LC_CTYPE, "") != nullptr &&
      std::string_view(nl_langinfo(CODESET)) == "UTF-8") {
    return;
  }
  std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace rivulet::cli
