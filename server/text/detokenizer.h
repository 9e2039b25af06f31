// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Token ids → UTF-8 text, incrementally. The text is always valid UTF-8 and consists of whole
// characters. The whole text does not depend on how the ids are split into calls.
//
// A character's bytes may be spread over several tokens; they are held back until it is complete. A
// byte that cannot continue the held bytes turns them into one U+FFFD (Unicode's "maximal subpart"
// practice, as Python's errors="replace"). Finish does the same with what is still held.
//
// A run of a tokenizer's byte tokens (Tokenizer::IsByteToken) is held back until it ends, since its
// last byte decides what its first one is: characters, or U+FFFD for each byte of the run.
//
// It does not look for stop strings (stop_matcher.h).
// Threading: one thread at a time. The tokenizer must outlive it.
#ifndef RIVULET_SERVER_TEXT_DETOKENIZER_H_
#define RIVULET_SERVER_TEXT_DETOKENIZER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "model_loader/tokenizer.h"

namespace rivulet {

// Bytes → valid UTF-8, for a stream of bytes. Holds at most three bytes back.
class Utf8Stream {
 public:
  // Appends to `text` what `bytes` completes.
  void Append(std::string_view bytes, std::string& text);
  // The end of the stream: an incomplete character becomes U+FFFD. Ready for another stream.
  void Finish(std::string& text);

 private:
  void Put(unsigned char byte, std::string& text);
  void StartCharacter(unsigned char byte, std::string& text);

  std::string held_;       // the first bytes of a character
  size_t missing_ = 0;     // how many more it needs
  unsigned char low_ = 0;  // the range of its next byte
  unsigned char high_ = 0;
};

// All of `bytes`, with U+FFFD in place of what is not UTF-8.
std::string ToUtf8(std::string_view bytes);

class Detokenizer {
 public:
  // `starts_text`: there is no text before the first token (StartsText of its context). That token
  // then has Tokenizer::FirstTokenBytes, without the dummy prefix's space; a completion that
  // continues a prompt keeps its leading space.
  Detokenizer(const Tokenizer& tokenizer, bool starts_text);

  // True if no token of `context` adds a byte to a text: nothing, or BOS and its kind.
  static bool StartsText(const Tokenizer& tokenizer, std::span<const uint32_t> context);

  // The text that these tokens complete. An id past the tokenizer's vocabulary (a model's padding
  // rows) adds nothing.
  std::string Append(std::span<const uint32_t> tokens);
  // The end of the text; what is still held becomes U+FFFD. Append must not be called again.
  std::string Finish();

 private:
  void Put(uint32_t token, std::string& text);
  void EndRun(std::string& text);

  const Tokenizer& tokenizer_;
  bool at_start_;
  Utf8Stream utf8_;
  std::string run_;  // of byte tokens, so far
  bool run_starts_text_ = false;
  bool held_space_ = false;  // of a tokenizer that drops a text's last one
};

// A whole text at once. `starts_text` as above.
std::string Detokenize(const Tokenizer& tokenizer, std::span<const uint32_t> tokens,
                       bool starts_text);

}  // namespace rivulet

#endif  // RIVULET_SERVER_TEXT_DETOKENIZER_H_
