// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the services know about the model: enough to check requests, fill in defaults and answer
// GetModel.
#ifndef RIVULET_SERVER_SERVICE_SERVED_MODEL_H_
#define RIVULET_SERVER_SERVICE_SERVED_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model_loader/hf_tokenizer/literal_matcher.h"
#include "model_loader/loaded_model.h"
#include "rivulet/v1/inference.pb.h"
#include "server/engine/engine.h"
#include "server/grammar/grammar_store.h"

namespace rivulet {

struct ServedModel {
  v1::Model info;                               // has_tokenizer is set where it is sent
  const Tokenizer* tokenizer = nullptr;         // null: token ids only
  const ChatTemplate* chat_template = nullptr;  // null: no messages
  LiteralMatcher specials;                      // how special tokens are written; to their ids
  std::vector<uint32_t> eos_ids;
  std::vector<uint32_t> begin_ids;  // what a text that begins a context gets before it: BOS
  GenerationDefaults defaults;
  std::shared_ptr<GrammarStore> grammars;  // null: as `tokenizer`, and no structured output
  bool has_levels = false;  // a layer is log-linear: info.max_context is where its levels end
  std::vector<std::string> left_out;  // LoadedModel::left_out
};

// Those that add no bytes to a text: Tokenizer::TokenBytes.
LiteralMatcher FindSpecials(const Tokenizer& tokenizer);

// The tokenizer and the template stay the model's: it must outlive the result.
ServedModel DescribeModel(const LoadedModel& model, const StateCapacity& capacity);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SERVICE_SERVED_MODEL_H_
