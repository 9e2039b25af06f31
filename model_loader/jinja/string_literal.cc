// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/jinja/string_literal.h"

#include <charconv>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "model_loader/jinja/unicode_text.h"

namespace rivulet::jinja {
namespace {

absl::Status AppendCode(uint32_t code, std::string& text) {
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
    return absl::InvalidArgumentError("a string has an escape that is no character");
  }
  AppendUtf8(code, text);
  return absl::OkStatus();
}

// \xhh, \uhhhh, \Uhhhhhhhh, from behind the letter.
absl::Status DecodeHex(std::string_view& source, size_t digits, std::string& text) {
  uint32_t code = 0;
  const std::string_view written = source.substr(0, digits);
  const auto [end, error] =
      std::from_chars(written.data(), written.data() + written.size(), code, 16);
  if (written.size() < digits || error != std::errc() || end != written.data() + digits) {
    return absl::InvalidArgumentError("a string has an incomplete escape");
  }
  source.remove_prefix(digits);
  return AppendCode(code, text);
}

absl::Status DecodeOctal(std::string_view& source, std::string& text) {
  uint32_t code = 0;
  for (int i = 0; i < 3 && !source.empty() && source[0] >= '0' && source[0] <= '7'; ++i) {
    code = code * 8 + static_cast<uint32_t>(source[0] - '0');
    source.remove_prefix(1);
  }
  return AppendCode(code, text);
}

// From behind the backslash.
absl::Status DecodeEscape(std::string_view& source, std::string& text) {
  constexpr std::string_view kLetters = "\\'\"abfnrtv", kValues = "\\'\"\a\b\f\n\r\t\v";
  const char letter = source[0];
  if (letter >= '0' && letter <= '7') return DecodeOctal(source, text);
  source.remove_prefix(1);
  const size_t known = kLetters.find(letter);
  if (known != std::string_view::npos) {
    text += kValues[known];
  } else if (letter == 'x') {
    return DecodeHex(source, 2, text);
  } else if (letter == 'u') {
    return DecodeHex(source, 4, text);
  } else if (letter == 'U') {
    return DecodeHex(source, 8, text);
  } else if (letter == 'N') {
    return absl::InvalidArgumentError("the escape \\N is not supported");
  } else if (letter != '\n') {
    text += {'\\', letter};
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> DecodeStringLiteral(std::string_view source) {
  std::string text;
  while (!source.empty()) {
    const char c = source[0];
    source.remove_prefix(1);
    if (c != '\\' || source.empty()) {
      text += c;
      continue;
    }
    RIVULET_RETURN_IF_ERROR(DecodeEscape(source, text));
  }
  return text;
}

}  // namespace rivulet::jinja
