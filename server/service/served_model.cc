// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/service/served_model.h"

#include <algorithm>

#include "kernels/base/dtype.h"

namespace rivulet {
namespace {

void DescribeState(const StateCapacity& capacity, v1::Model& info) {
  uint64_t session_bytes = capacity.base_bytes + capacity.tail_bytes, token_bytes = 0;
  for (const PageCapacity& pages : capacity.pages) {
    const PageKind& kind = pages.kind;
    if (kind.fenwick()) {
      session_bytes += kind.levels * pages.page_bytes;
      info.set_levels(std::max(info.levels(), kind.levels));
      info.set_level_bytes(info.level_bytes() + pages.page_bytes);
    } else if (kind.window > 0) {
      session_bytes += (kind.window / capacity.fold_interval + 1) * pages.page_bytes;
    } else {
      token_bytes += pages.page_bytes / capacity.fold_interval;
    }
  }
  info.set_state_bytes_per_session(session_bytes);
  info.set_state_bytes_per_token(token_bytes);
  info.set_fold_interval(capacity.fold_interval);
}

bool HasLevels(const StateCapacity& capacity) {
  return std::any_of(capacity.pages.begin(), capacity.pages.end(),
                     [](const PageCapacity& pages) { return pages.kind.fenwick(); });
}

// What the tokenizer's files say about BOS counts: a config.json may name a BOS token that the
// model was not trained to begin with.
std::vector<uint32_t> BeginIds(const LoadedModel& model) {
  if (model.tokenizer != nullptr && model.tokenizer->begin_ids().has_value()) {
    return *model.tokenizer->begin_ids();
  }
  if (model.spec.bos_id < 0) return {};
  return {static_cast<uint32_t>(model.spec.bos_id)};
}

}  // namespace

LiteralMatcher FindSpecials(const Tokenizer& tokenizer) {
  LiteralMatcher specials;
  for (uint32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view piece = tokenizer.Piece(id);
    if (tokenizer.TokenBytes(id).empty() && !piece.empty()) specials.Add(piece, id);
  }
  return specials;
}

ServedModel DescribeModel(const LoadedModel& model, const StateCapacity& capacity) {
  ServedModel served;
  v1::Model& info = served.info;
  info.set_name(model.name);
  info.set_architecture(model.spec.architecture);
  for (const LoadedLayer& layer : model.layers) {
    info.add_layer_mixers(layer.mixer == nullptr ? "none" : layer.mixer_type);
  }
  info.set_parameters(model.parameters);
  info.set_vocab_size(static_cast<uint32_t>(model.spec.vocab));
  info.set_weight_dtype(DTypeName(model.weight_dtype));
  info.set_state_dtype(DTypeName(model.state_dtype));
  DescribeState(capacity, info);
  info.set_max_context(model.max_tokens() == UINT64_MAX ? 0 : model.max_tokens());
  served.has_levels = HasLevels(capacity);
  info.set_has_chat_template(model.chat_template != nullptr);
  served.left_out = model.left_out;
  served.tokenizer = model.tokenizer.get();
  if (served.tokenizer != nullptr) served.specials = FindSpecials(*served.tokenizer);
  served.chat_template = model.chat_template.get();
  served.eos_ids = model.spec.eos_ids;
  served.begin_ids = BeginIds(model);
  served.defaults = model.defaults;
  return served;
}

}  // namespace rivulet
