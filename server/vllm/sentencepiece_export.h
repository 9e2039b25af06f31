// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A SentencePiece model → the same tokenizer in the format of the `tokenizers` package, for clients
// that read only that.
//
// The ids of a text are the same, but that two pieces of a unigram model may come in the other
// order where both orders have the same score up to rounding. A control piece ("<s>") that is
// written in a text becomes that token, as in any tokenizer.json.
#ifndef RIVULET_SERVER_VLLM_SENTENCEPIECE_EXPORT_H_
#define RIVULET_SERVER_VLLM_SENTENCEPIECE_EXPORT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace rivulet::vllm_engine {

// `model`: the bytes of tokenizer.model; `begin_ids`: what a text that begins a context gets before
// it. INVALID_ARGUMENT if it is no such model. UNIMPLEMENTED names what the other format cannot
// say: models of words or characters, spaces as suffixes, and user-defined pieces beside a dummy
// prefix or spaces that are removed.
absl::StatusOr<std::string> ExportTokenizerJson(std::string_view model,
                                                const std::vector<uint32_t>& begin_ids);

}  // namespace rivulet::vllm_engine

#endif  // RIVULET_SERVER_VLLM_SENTENCEPIECE_EXPORT_H_
