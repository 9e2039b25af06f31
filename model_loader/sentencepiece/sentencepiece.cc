// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/sentencepiece/sentencepiece.h"

#include <sentencepiece_processor.h>

#include <fstream>
#include <sstream>
#include <utility>

#include "model_loader/sentencepiece/normalizer_check.h"

namespace rivulet {

struct SentencePiece::Processor {
  sentencepiece::SentencePieceProcessor library;
};

SentencePiece::SentencePiece(std::unique_ptr<Processor> processor)
    : processor_(std::move(processor)) {}

SentencePiece::~SentencePiece() = default;

std::unique_ptr<SentencePiece> SentencePiece::LoadFile(const std::string& path,
                                                       std::string* error) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes
      << file.rdbuf();  // an error sets a state; iterators would throw, for example on a directory
  if (!file || !bytes) {
    *error = path + ": cannot be read";
    return nullptr;
  }
  auto loaded = LoadBytes(bytes.str(), error);
  if (loaded == nullptr) *error = path + ": " + *error;
  return loaded;
}

std::unique_ptr<SentencePiece> SentencePiece::LoadBytes(std::string_view bytes,
                                                        std::string* error) {
  if (!NormalizersAreSound(bytes)) {
    *error = "not a SentencePiece model: damaged (the normalisation table leads outside of itself)";
    return nullptr;
  }
  auto processor = std::make_unique<Processor>();
  // An empty model parses, and the library then ends the process on the first call.
  const auto status = processor->library.LoadFromSerializedProto(bytes);
  if (!status.ok() || processor->library.GetPieceSize() == 0) {
    *error = "not a SentencePiece model: " + (status.ok() ? "it has no pieces" : status.ToString());
    return nullptr;
  }
  return std::unique_ptr<SentencePiece>(new SentencePiece(std::move(processor)));
}

bool SentencePiece::Encode(std::string_view text, std::vector<int>* ids, std::string* error) const {
  const auto status = processor_->library.Encode(text, ids);
  if (status.ok()) return true;
  ids->clear();
  *error = status.ToString();
  return false;
}

bool SentencePiece::Decode(const std::vector<int>& ids, std::string* text,
                           std::string* error) const {
  text->clear();
  for (const int id : ids) {
    if (Contains(id)) continue;
    *error = "token id " + std::to_string(id) + " is outside of [0, " +
             std::to_string(vocabulary_size()) + ")";
    return false;
  }
  const auto status = processor_->library.Decode(ids, text);
  if (!status.ok()) *error = status.ToString();
  return status.ok();
}

int SentencePiece::vocabulary_size() const { return processor_->library.GetPieceSize(); }

std::string_view SentencePiece::IdToPiece(int id) const {
  if (!Contains(id)) return {};
  return processor_->library.IdToPiece(id);
}

int SentencePiece::PieceToId(std::string_view piece) const {
  return processor_->library.PieceToId(piece);
}

bool SentencePiece::IsByte(int id) const { return Contains(id) && processor_->library.IsByte(id); }

bool SentencePiece::IsControl(int id) const {
  return Contains(id) && processor_->library.IsControl(id);
}

bool SentencePiece::IsUnknown(int id) const {
  return Contains(id) && processor_->library.IsUnknown(id);
}

bool SentencePiece::IsUnused(int id) const {
  return Contains(id) && processor_->library.IsUnused(id);
}

int SentencePiece::begin_id() const { return processor_->library.bos_id(); }
int SentencePiece::end_id() const { return processor_->library.eos_id(); }
int SentencePiece::unknown_id() const { return processor_->library.unk_id(); }
int SentencePiece::padding_id() const { return processor_->library.pad_id(); }

}  // namespace rivulet
