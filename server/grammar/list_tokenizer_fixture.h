// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A tokenizer whose tokens are the texts of a list. For tests only.
#ifndef RIVULET_SERVER_GRAMMAR_LIST_TOKENIZER_FIXTURE_H_
#define RIVULET_SERVER_GRAMMAR_LIST_TOKENIZER_FIXTURE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "model_loader/tokenizer.h"

namespace rivulet {

class ListTokenizer : public Tokenizer {
 public:
  // `dummy_prefix`: a space that begins a text's first token is dropped.
  explicit ListTokenizer(std::vector<std::string> tokens, bool dummy_prefix = false)
      : tokens_(std::move(tokens)), dummy_prefix_(dummy_prefix) {}

  absl::StatusOr<std::vector<uint32_t>> EncodeMarked(std::string_view,
                                                     const PlainRanges&) const override {
    return absl::UnimplementedError("a list does not encode");
  }
  std::string_view TokenBytes(uint32_t id) const override { return tokens_[id]; }
  std::string_view Piece(uint32_t id) const override { return tokens_[id]; }
  size_t vocab_size() const override { return tokens_.size(); }
  bool AddsDummyPrefix() const override { return dummy_prefix_; }
  int64_t bos_id() const override { return -1; }
  int64_t eos_id() const override { return -1; }

 private:
  const std::vector<std::string> tokens_;
  const bool dummy_prefix_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_GRAMMAR_LIST_TOKENIZER_FIXTURE_H_
