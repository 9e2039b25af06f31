// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Text ↔ token ids. A model may have none: it is then served with token ids alone.
// Threading: const methods may run in any number of threads at once.
#ifndef RIVULET_MODEL_LOADER_TOKENIZER_H_
#define RIVULET_MODEL_LOADER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model_loader/marked_text.h"

namespace rivulet {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of `text` (valid UTF-8, else INVALID_ARGUMENT), without BOS or EOS. A special token written
  // in it ("<|im_end|>") is that token, unless one of its bytes is in `plain`: then it is text like
  // any other.
  virtual absl::StatusOr<std::vector<uint32_t>> EncodeMarked(std::string_view text,
                                                             const PlainRanges& plain) const = 0;

  // Of a text that a client wrote: special tokens in it are text, so that a user cannot forge a
  // turn's end.
  absl::StatusOr<std::vector<uint32_t>> Encode(std::string_view text) const {
    return EncodeMarked(text, {{0, text.size()}});
  }
  // Of a text in which all special tokens count.
  absl::StatusOr<std::vector<uint32_t>> EncodeRendered(std::string_view text) const {
    return EncodeMarked(text, {});
  }

  // The bytes that a token adds to a text: ▁ is a space, a byte piece is its byte (maybe part of a
  // character), control pieces (BOS, EOS, padding) are empty. Concatenating them, less the one
  // space that Encode's dummy prefix put first if it puts one (AddsDummyPrefix), gives the text
  // exactly. REQUIRES: id < vocab_size().
  virtual std::string_view TokenBytes(uint32_t id) const = 0;

  // The bytes that it adds as the first token of a text: without the dummy prefix's space.
  virtual std::string_view FirstTokenBytes(uint32_t id) const {
    const std::string_view bytes = TokenBytes(id);
    return AddsDummyPrefix() && bytes.starts_with(' ') ? bytes.substr(1) : bytes;
  }

  // Whether a run of such tokens is shown as a whole: if its bytes are not UTF-8, each becomes one
  // U+FFFD; else, at the start of a text, it loses the dummy prefix's space. (Other invalid bytes:
  // server/text/detokenizer.h.)
  virtual bool IsByteToken(uint32_t) const { return false; }
  // Whether a space that ends a token's bytes is dropped at the end of a text.
  virtual bool DropsLastSpace() const { return false; }

  // The piece as the tokenizer writes it ("▁once", "<0xC3>"). REQUIRES: id < vocab_size().
  virtual std::string_view Piece(uint32_t id) const = 0;

  virtual size_t vocab_size() const = 0;
  virtual bool AddsDummyPrefix() const = 0;
  virtual int64_t bos_id() const = 0;  // -1: none
  virtual int64_t eos_id() const = 0;
  // All tokens that end a generation; -1 is none.
  virtual std::vector<int64_t> end_ids() const { return {eos_id()}; }

  // What a text that begins a context gets before it (BOS, or nothing), if the tokenizer's files
  // say; else config.json does.
  virtual const std::optional<std::vector<uint32_t>>& begin_ids() const {
    static const std::optional<std::vector<uint32_t>> unknown;
    return unknown;
  }
};

// tokenizer.model of SentencePiece (any model type). NOT_FOUND if the file is missing.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadSentencePiece(const std::string& path);

// tokenizer.json of the `tokenizers` package, with what tokenizer_config.json and
// special_tokens_map.json of the same directory say. NOT_FOUND if it has no tokenizer.json;
// UNIMPLEMENTED names a part that is not supported (docs/tokenizers.md).
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerJson(const std::string& directory);

// The tokenizer of a model's directory: tokenizer.json, else tokenizer.model. NOT_FOUND if it has
// neither.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& directory);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_TOKENIZER_H_
