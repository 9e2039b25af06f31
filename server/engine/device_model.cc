// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/device_model.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/device/device_operations.h"

namespace rivulet {

absl::StatusOr<std::unique_ptr<DeviceModel>> DeviceModel::Make(
    std::shared_ptr<const LoadedModel> model, Device* device) {
  constexpr size_t kMostHidden = 8192;  // that a norm's block holds (kernels/device/rows.cu)
  if (model->spec.hidden > kMostHidden) {
    return absl::UnimplementedError(absl::StrCat("hidden_size is ", model->spec.hidden,
                                                 ", and the CUDA kernels reach ", kMostHidden,
                                                 "; use --device cpu"));
  }
  const EmbeddingTable& table = model->embeddings;
  std::unique_ptr<DeviceModel> result(new DeviceModel(model, device));
  const size_t bytes = table.vocab * table.width * DTypeSize(table.dtype);
  RIVULET_ASSIGN_OR_RETURN(void* copy, device->Allocate(bytes));
  RIVULET_RETURN_IF_ERROR(device->Upload(copy, table.data, bytes));
  result->table_ = {copy, table.dtype, static_cast<uint32_t>(table.vocab),
                    static_cast<uint32_t>(table.width), table.multiplier};
  return result;
}

std::vector<const StateLayout*> DeviceModel::StateLayouts() const {
  std::vector<const StateLayout*> layouts;
  for (const LoadedLayer& layer : model_->layers) layouts.push_back(&layer.state_layout);
  return layouts;
}

DeviceModel::Stream DeviceModel::Forward(const uint32_t* ids, const DeviceRows& rows,
                                         std::span<const DevicePages> pages,
                                         const uint32_t* last_tokens, const StatePool& states) {
  const Stream stream{step_workspace_.Take(rows.tokens, hidden()),
                      step_workspace_.Take(rows.tokens, hidden())};
  const Operand normed = step_workspace_.TakeOperand(rows.tokens, hidden());
  device_->Embed(table_, ids, rows, last_tokens, stream.x);
  ConstFloatMatrix update = {};  // of the block before
  for (size_t i = 0; i < model_->layers.size(); ++i) {
    const LoadedLayer& layer = model_->layers[i];
    const LayerState state = states.Layer(i);
    const bool has_pages = layer.state_layout.page_kind().rule != PageRule::kNone;
    const DeviceStep step{device_,
                          &layer_workspace_,
                          rows,
                          {state.bases, state.base_stride, state.tails, state.tail_stride,
                           state.pages, state.page_stride},
                          has_pages ? pages[state.page_kind] : DevicePages{}};
    if (layer.mixer != nullptr) {
      layer.mixer_norm.Enqueue(*device_, stream.x, update, normed);
      layer_workspace_.Reset();
      layer.mixer->Enqueue(step, normed, stream.update);
      update = stream.update;
    }
    if (layer.feed_forward == nullptr) continue;
    layer.feed_forward_norm.Enqueue(*device_, stream.x, update, normed);
    layer_workspace_.Reset();
    layer.feed_forward->Enqueue(step, normed, stream.update);
    update = stream.update;
  }
  return stream;
}

void DeviceModel::Logits(const Stream& stream, FloatMatrix logits) {
  const Operand normed = step_workspace_.TakeOperand(stream.x.rows, hidden());
  model_->final_norm.Enqueue(*device_, stream.x, stream.update, normed);
  model_->lm_head.Enqueue(*device_, normed, logits);
}

void DeviceModel::AddUp(const Stream& stream) {
  device_->AddNorm({.x = stream.x, .update = stream.update});
}

absl::Status DeviceModel::status() const {
  if (!step_workspace_.status().ok()) return step_workspace_.status();
  return layer_workspace_.status();
}

}  // namespace rivulet
