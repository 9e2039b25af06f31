// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the services know about the model: enough to check requests, fill in defaults and answer
// GetModel.
#ifndef RIVULET_SERVER_RPC_SERVED_MODEL_H_
#define RIVULET_SERVER_RPC_SERVED_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "model_loader/loaded_model.h"
#include "server/engine/engine.h"

namespace rivulet {

struct ServedModel {
  std::string name;
  std::string architecture;
  std::vector<std::string> layer_mixers;
  uint64_t parameters = 0;
  uint32_t vocab = 0;
  std::string weight_dtype;
  std::string state_dtype;
  uint64_t state_bytes_per_session = 0;  // with every level of a log-linear mixer
  uint64_t state_bytes_per_token = 0;    // beyond that, for each token
  uint32_t fold_interval = 0;            // C: a state folds when its tokens reach a multiple of it
  uint64_t max_context = 0;              // tokens; 0: no limit
  const Tokenizer* tokenizer = nullptr;  // null: token ids only
  std::vector<uint32_t> eos_ids;
  int64_t bos_id = -1;  // -1: none
  bool has_chat_template = false;
  GenerationDefaults defaults;
};

// The tokenizer stays the model's: it must outlive the result.
ServedModel DescribeModel(const LoadedModel& model, const StateCapacity& capacity);

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_SERVED_MODEL_H_
