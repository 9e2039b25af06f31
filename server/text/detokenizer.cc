// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/text/detokenizer.h"

#include "kernels/base/utf8.h"

namespace rivulet {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD

std::string_view BytesOf(const Tokenizer& tokenizer, uint32_t token) {
  return token < tokenizer.vocab_size() ? tokenizer.TokenBytes(token) : std::string_view();
}

}  // namespace

void Utf8Stream::Append(std::string_view bytes, std::string& text) {
  for (char byte : bytes) Put(static_cast<unsigned char>(byte), text);
}

void Utf8Stream::Finish(std::string& text) {
  if (!held_.empty()) text += kReplacement;
  held_.clear();
}

void Utf8Stream::Put(unsigned char byte, std::string& text) {
  if (held_.empty()) return StartCharacter(byte, text);
  if (byte < low_ || byte > high_) {
    Finish(text);
    return StartCharacter(byte, text);
  }
  held_ += static_cast<char>(byte);
  low_ = 0x80;
  high_ = 0xBF;
  if (--missing_ != 0) return;
  text += held_;
  held_.clear();
}

// Unicode table 3-7: how many bytes follow the first, and the range of the second, which excludes
// overlong forms, surrogates and code points above U+10FFFF.
void Utf8Stream::StartCharacter(unsigned char byte, std::string& text) {
  low_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
  high_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
  if (byte < 0x80) {
    text += static_cast<char>(byte);
  } else if (byte < 0xC2 || byte > 0xF4) {
    text += kReplacement;
  } else {
    missing_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
    held_ = static_cast<char>(byte);
  }
}

std::string ToUtf8(std::string_view bytes) {
  std::string text;
  Utf8Stream stream;
  stream.Append(bytes, text);
  stream.Finish(text);
  return text;
}

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool starts_text)
    : tokenizer_(tokenizer), at_start_(starts_text) {}

bool Detokenizer::StartsText(const Tokenizer& tokenizer, std::span<const uint32_t> context) {
  for (uint32_t token : context) {
    if (!BytesOf(tokenizer, token).empty()) return false;
  }
  return true;
}

std::string Detokenizer::Append(std::span<const uint32_t> tokens) {
  std::string text;
  for (uint32_t token : tokens) {
    if (!BytesOf(tokenizer_, token).empty()) Put(token, text);
  }
  return text;
}

void Detokenizer::Put(uint32_t token, std::string& text) {
  if (tokenizer_.IsByteToken(token)) {
    if (run_.empty()) run_starts_text_ = at_start_;
    at_start_ = false;
    run_ += tokenizer_.TokenBytes(token);
    return;
  }
  std::string_view bytes =
      at_start_ ? tokenizer_.FirstTokenBytes(token) : tokenizer_.TokenBytes(token);
  at_start_ = false;
  EndRun(text);
  if (held_space_) utf8_.Append(" ", text);
  held_space_ = tokenizer_.DropsLastSpace() && bytes.ends_with(' ');
  if (held_space_) bytes.remove_suffix(1);
  utf8_.Append(bytes, text);
}

void Detokenizer::EndRun(std::string& text) {
  if (run_.empty()) return;
  if (ValidUtf8Length(run_) == run_.size()) {
    const bool prefixed = run_starts_text_ && tokenizer_.AddsDummyPrefix() && run_[0] == ' ';
    text.append(run_, prefixed ? 1 : 0);
  } else {
    for (size_t i = 0; i < run_.size(); ++i) text += kReplacement;
  }
  run_.clear();
}

std::string Detokenizer::Finish() {
  std::string text;
  EndRun(text);
  utf8_.Finish(text);
  return text;
}

std::string Detokenize(const Tokenizer& tokenizer, std::span<const uint32_t> tokens,
                       bool starts_text) {
  Detokenizer detokenizer(tokenizer, starts_text);
  std::string text = detokenizer.Append(tokens);
  return text += detokenizer.Finish();
}

}  // namespace rivulet
