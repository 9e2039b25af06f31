// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The "model" of a tokenizer.json: encodes the pieces that the pre-tokenizer cut. BPE, Unigram,
// WordPiece and WordLevel.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_SUBWORD_MODEL_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_SUBWORD_MODEL_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model_loader/hf_tokenizer/vocabulary.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// Threading: const methods may run in any number of threads at once; an encoder is one thread's.
class SubwordModel {
 public:
  // What encodes the pieces of one text: it holds memory that they share.
  class Encoder {
   public:
    virtual ~Encoder() = default;
    // Appends the ids of a piece (UTF-8, not empty). INVALID_ARGUMENT if the model has no token for
    // a part of it and no token for unknown text either.
    virtual absl::Status Append(std::string_view piece, std::vector<uint32_t>* ids) = 0;
  };

  virtual ~SubwordModel() = default;
  virtual std::unique_ptr<Encoder> NewEncoder() const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
};

// INVALID_ARGUMENT and UNIMPLEMENTED say what is wrong or not supported.
absl::StatusOr<std::unique_ptr<const SubwordModel>> ParseSubwordModel(const nlohmann::json& json);

// Of the kinds. Internal to ParseSubwordModel.
absl::StatusOr<std::unique_ptr<const SubwordModel>> ParseBpe(const nlohmann::json& json);
absl::StatusOr<std::unique_ptr<const SubwordModel>> ParseUnigram(const nlohmann::json& json);
absl::StatusOr<std::unique_ptr<const SubwordModel>> ParseWordPiece(const nlohmann::json& json);
absl::StatusOr<std::unique_ptr<const SubwordModel>> ParseWordLevel(const nlohmann::json& json);

// The key "vocab": {"token": id}.
absl::Status ReadVocabulary(const nlohmann::json& model, Vocabulary* vocabulary);

// The ids of the tokens <0x00> to <0xFF>; kNoToken for those that the vocabulary does not have.
inline constexpr uint32_t kNoToken = UINT32_MAX;
std::vector<uint32_t> ByteTokens(const Vocabulary& vocabulary);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_SUBWORD_MODEL_H_
