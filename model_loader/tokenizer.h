// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Text ↔ token ids. A model may have none: it is then served with token ids alone.
// Threading: const methods may run in any number of threads at once.
#ifndef RIVULET_MODEL_LOADER_TOKENIZER_H_
#define RIVULET_MODEL_LOADER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace rivulet {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of `text` (valid UTF-8, else INVALID_ARGUMENT), without BOS or EOS. A special token written
  // in it ("<|im_end|>") is text like any other, so that a user cannot forge a turn's end.
  virtual absl::StatusOr<std::vector<uint32_t>> Encode(std::string_view text) const = 0;

  // The same for a text that a chat template has rendered: special tokens written in it are those
  // tokens. Nothing is added here either: templates write BOS themselves.
  virtual absl::StatusOr<std::vector<uint32_t>> EncodeRendered(std::string_view text) const = 0;

  // The bytes that a token adds to a text: ▁ is a space, a byte piece is its byte (maybe part of a
  // character), control pieces (BOS, EOS, padding) are empty. Concatenating them, less the one
  // space that Encode's dummy prefix put first if it puts one (AddsDummyPrefix), gives the text
  // exactly. REQUIRES: id < vocab_size().
  virtual std::string_view TokenBytes(uint32_t id) const = 0;

  // The piece as the tokenizer writes it ("▁once", "<0xC3>"). REQUIRES: id < vocab_size().
  virtual std::string_view Piece(uint32_t id) const = 0;

  virtual size_t vocab_size() const = 0;
  virtual bool AddsDummyPrefix() const = 0;
  virtual int64_t bos_id() const = 0;  // -1: none
  virtual int64_t eos_id() const = 0;
};

// tokenizer.model of SentencePiece (any model type). NOT_FOUND if the file is missing.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadSentencePiece(const std::string& path);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_TOKENIZER_H_
