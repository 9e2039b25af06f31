// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The "decoder" of a tokenizer.json, worked out for each token once: the bytes that it adds to a
// text, and the bytes if it is the text's first.
//
// All kinds of the `tokenizers` package but CTC and orders of them in which a token's bytes would
// depend on its neighbours; those are UNIMPLEMENTED and named.
// Threading: const methods may run in any number of threads at once.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_DECODER_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_DECODER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model_loader/hf_tokenizer/pattern.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

struct DecodedToken {
  std::string bytes;
  bool is_byte = false;  // <0xNN>: part of a run that is shown as a whole
};

class Decoder {
 public:
  // One stage of a sequence.
  class Step {
   public:
    virtual ~Step() = default;
    virtual absl::Status Apply(bool first, PatternScratch& scratch, DecodedToken* token) const = 0;
  };

  // JSON null: tokens are words with a space between them.
  static absl::StatusOr<Decoder> Parse(const nlohmann::json& json);

  absl::StatusOr<DecodedToken> Decode(std::string_view token, bool first,
                                      PatternScratch& scratch) const;
  // A space that ends a token is not shown when the text ends there (BPEDecoder).
  bool drops_last_space() const { return drops_last_space_; }

 private:
  absl::Status Add(const nlohmann::json& json);
  absl::Status AddStrip(const nlohmann::json& json);

  std::vector<std::shared_ptr<const Step>> steps_;
  bool fused_ = false;         // what comes now sees the whole text
  bool bytes_joined_ = false;  // or runs of bytes as characters
  bool drops_last_space_ = false;
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_DECODER_H_
