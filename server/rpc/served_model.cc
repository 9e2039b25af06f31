// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/rpc/served_model.h"

#include "kernels/base/dtype.h"

namespace rivulet {
namespace {

void DescribePages(const StateCapacity& capacity, ServedModel& served) {
  for (const PageCapacity& pages : capacity.pages) {
    const PageKind& kind = pages.kind;
    if (kind.fenwick()) {
      served.state_bytes_per_session += kind.levels * pages.page_bytes;
    } else if (kind.window > 0) {
      served.state_bytes_per_session +=
          (kind.window / capacity.fold_interval + 1) * pages.page_bytes;
    } else {
      served.state_bytes_per_token += pages.page_bytes / capacity.fold_interval;
    }
  }
}

}  // namespace

ServedModel DescribeModel(const LoadedModel& model, const StateCapacity& capacity) {
  ServedModel served;
  served.name = model.name;
  served.architecture = model.spec.architecture;
  for (const LoadedLayer& layer : model.layers) served.layer_mixers.push_back(layer.mixer_type);
  served.parameters = model.parameters;
  served.vocab = static_cast<uint32_t>(model.spec.vocab);
  served.weight_dtype = DTypeName(model.weight_dtype);
  served.state_dtype = DTypeName(model.state_dtype);
  served.state_bytes_per_session = capacity.base_bytes + capacity.tail_bytes;
  DescribePages(capacity, served);
  served.fold_interval = capacity.fold_interval;
  served.max_context = model.max_tokens() == UINT64_MAX ? 0 : model.max_tokens();
  served.tokenizer = model.tokenizer.get();
  served.eos_ids = model.spec.eos_ids;
  served.bos_id = model.spec.bos_id;
  served.has_chat_template = model.has_chat_template;
  served.defaults = model.defaults;
  return served;
}

}  // namespace rivulet
