// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A SentencePiece model (tokenizer.model): text to token ids and back.
//
// A thin wrapper in a shared library of its own, with std types only. It is the one place that
// includes sentencepiece_processor.h: that header and Abseil's cannot be in one translation unit,
// and the library behind it must be the patched copy that CMakeLists.txt makes. It deliberately
// does not stream: decode token by token from IdToPiece, where "▁" is a space and "<0xC3>" one byte
// of a character.
//
// Threading: const methods may be called from any thread at once. The views that methods return
// live as long as the object.
#ifndef RIVULET_MODEL_LOADER_SENTENCEPIECE_SENTENCEPIECE_H_
#define RIVULET_MODEL_LOADER_SENTENCEPIECE_SENTENCEPIECE_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace rivulet {

class __attribute__((visibility("default"))) SentencePiece {
 public:
  // Null if the file cannot be read or is not a valid model; *error then says why and names the
  // path.
  static std::unique_ptr<SentencePiece> LoadFile(const std::string& path, std::string* error);
  // The same from the bytes of a model file, which need not outlive the call.
  static std::unique_ptr<SentencePiece> LoadBytes(std::string_view bytes, std::string* error);

  ~SentencePiece();
  SentencePiece(const SentencePiece&) = delete;
  SentencePiece& operator=(const SentencePiece&) = delete;

  // Replaces *ids with the tokens of `text`, without begin or end tokens. Bytes that are not UTF-8
  // count as U+FFFD. False only when the library fails; *ids is then empty and *error says why.
  bool Encode(std::string_view text, std::vector<int>* ids, std::string* error) const;
  // Replaces *text. Control tokens give nothing. False when an id is outside of [0,
  // vocabulary_size).
  bool Decode(const std::vector<int>& ids, std::string* text, std::string* error) const;

  int vocabulary_size() const;
  // The token's piece, or an empty view when `id` is outside of [0, vocabulary_size).
  std::string_view IdToPiece(int id) const;
  // The piece's id, or unknown_id() when the vocabulary does not have it.
  int PieceToId(std::string_view piece) const;

  // What kind of piece `id` is; all false outside of [0, vocabulary_size).
  bool IsByte(int id) const;     // "<0x00>" to "<0xFF>", of a model with byte fallback
  bool IsControl(int id) const;  // <s>, </s> and the like: no text
  bool IsUnknown(int id) const;
  bool IsUnused(int id) const;

  // -1 when the model has no such token.
  int begin_id() const;
  int end_id() const;
  int unknown_id() const;
  int padding_id() const;

 private:
  explicit SentencePiece(std::unique_ptr<sentencepiece::SentencePieceProcessor> library);
  bool Contains(int id) const { return id >= 0 && id < vocabulary_size(); }

  const std::unique_ptr<sentencepiece::SentencePieceProcessor> library_;
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_SENTENCEPIECE_SENTENCEPIECE_H_
