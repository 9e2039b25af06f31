// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The "World" tokenizer of RWKV: at each place the longest token of a list, byte by byte. The list
// is rwkv_vocab_v20230424.txt, a line for each token: its id, a Python literal of its text ('...')
// or of its bytes (b'...'), and the number of its bytes.
//
// Ids are those of RWKV's own code. Published tokenizer_config.json files name an eos_token "\n\n",
// to which transformers gives an id behind the vocabulary that no model has learned; here it is the
// token with that text.
//
// Threading: const methods may run in any number of threads at once.
#ifndef RIVULET_MODEL_LOADER_WORLD_TOKENIZER_H_
#define RIVULET_MODEL_LOADER_WORLD_TOKENIZER_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model_loader/tokenizer.h"

namespace rivulet {

// From the text of the list. `end_of_text` is what token 0 is written as in a rendered text;
// `end_of_turn` is the text of a token that ends a generation too; empty: none.
// INVALID_ARGUMENT names the line. The result keeps nothing of the arguments.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeWorldTokenizer(std::string_view list,
                                                              const std::string& end_of_text,
                                                              std::string_view end_of_turn);

// The one of a directory with rwkv_vocab_v20230424.txt, else NOT_FOUND. tokenizer_config.json, if
// there is one, says what token 0 and the end of a turn are (added_tokens_decoder, eos_token).
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadWorldTokenizer(const std::string& directory);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_WORLD_TOKENIZER_H_
