// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/device_model.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace rivulet {
namespace {

// Whether a block's update is added as it is, to one stream.
bool AddsPlainly(const LoadedResidual& residual) {
  return residual.connection == nullptr && residual.keep == 1 && residual.add == 1 &&
         residual.output_norm.empty() && !residual.keeps_normed;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceModel>> DeviceModel::Make(
    std::shared_ptr<const LoadedModel> model, Device* device) {
  if (model->spec.hidden > kMostNormedWidth) {
    return absl::UnimplementedError(absl::StrCat("hidden_size is ", model->spec.hidden,
                                                 ", and the CUDA kernels reach ", kMostNormedWidth,
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

AddNormCall DeviceModel::AddUpdate(const Stream& stream) const {
  AddNormCall call{.x = stream.x};
  if (stream.residual == nullptr) return call;
  call.update = stream.update;
  call.update_factor = stream.factor;
  call.keep = stream.residual->keep;
  call.add = stream.residual->add;
  const TrainedNorm& norm = stream.residual->output_norm;
  if (!norm.empty()) norm.SetUpdateNorm(*device_, call);
  return call;
}

void DeviceModel::Enter(const TrainedNorm& norm, const LoadedResidual& residual,
                        const Stream& stream, const Operand& y) {
  AddNormCall call = AddUpdate(stream);
  call.keeps_normed = residual.keeps_normed;
  call.y = y;
  norm.Enqueue(*device_, call);
}

FloatMatrix DeviceModel::EnterBlock(const TrainedNorm& norm, const LoadedResidual& residual,
                                    const DeviceStep& step, const Stream& stream,
                                    const Operand& y) {
  if (residual.connection == nullptr) {
    Enter(norm, residual, stream, y);
    return {};
  }
  const FloatMatrix weights = residual.connection->EnqueueCollapse(step, stream.all, stream.x);
  norm.Enqueue(*device_, {.x = stream.x, .y = y});
  return weights;
}

void DeviceModel::Leave(const LoadedResidual& residual, const DeviceStep& step,
                        ConstFloatMatrix weights, Stream& stream) {
  if (residual.connection == nullptr) {
    stream.residual = &residual;
  } else {
    residual.connection->EnqueueExpand(step, stream.update, weights, stream.all);
  }
}

// The streams to x, after the last layer.
void DeviceModel::CollapseAll(const Stream& stream, const DeviceRows& rows) {
  if (model_->last_connection == nullptr) return EnqueueMean(*device_, stream.all, stream.x);
  layer_workspace_.Reset();
  const DeviceStep step{device_, &layer_workspace_, rows, {}};
  model_->last_connection->EnqueueCollapse(step, stream.all, stream.x);
}

FloatMatrix DeviceModel::WithEmbeddings(const Stream& stream, const Tokens& tokens) {
  AddUp(stream);
  const FloatMatrix both = layer_workspace_.Take(stream.x.rows, 2 * hidden());
  Embed(tokens, both.Columns(hidden(), hidden()));
  device_->CopyColumns(stream.x, both.Columns(0, hidden()));
  return both;
}

bool DeviceModel::EntersLate(const LoadedLayer& layer) const {
  const TrainedNorm& norm = layer.mixer_norm;
  return layer.mixer != nullptr && layer.mixer->takes_factor() && layer.feed_forward == nullptr &&
         layer.ngrams == nullptr && !layer.reads_embeddings && AddsPlainly(layer.mixer_residual) &&
         !norm.empty() && !norm.centred() && LateNorm::Serves(hidden());
}

LateNorm DeviceModel::NormOf(const LoadedLayer& layer, const Temporaries& temporaries) const {
  return {.weight = device_->Constant({layer.mixer_norm.weight(), hidden()}),
          .eps = layer.mixer_norm.eps(),
          .y = temporaries.normed,
          .squares = temporaries.squares.data,
          .stride = static_cast<uint32_t>(temporaries.squares.stride),
          .factors = temporaries.factors.data};
}

RowFactor DeviceModel::EnterLate(const LoadedLayer& layer, const Temporaries& temporaries,
                                 const Stream& stream) {
  if (stream.entered.given()) return stream.entered;
  AddLateCall call{.x = stream.x, .norm = NormOf(layer, temporaries)};
  if (stream.residual != nullptr && AddsPlainly(*stream.residual)) {
    call.update = stream.update;
    call.factor = stream.factor;
  } else {
    AddUp(stream);
  }
  device_->AddLate(call);
  return call.norm.Factor(hidden(), /*of_squares=*/false);
}

void DeviceModel::MixLate(const LoadedLayer& layer, const LoadedLayer* next, DeviceStep step,
                          const Temporaries& temporaries, Stream& stream) {
  step.input_factor = EnterLate(layer, temporaries, stream);
  stream.factor = stream.entered = {};
  step.output_factor = &stream.factor;
  if (next == nullptr || !EntersLate(*next)) {
    layer.mixer->Enqueue(step, temporaries.normed, stream.update);
    stream.residual = &layer.mixer_residual;
    return;
  }
  ResidualSum sum{.x = stream.x, .norm = NormOf(*next, temporaries)};
  step.sum = &sum;
  layer.mixer->Enqueue(step, temporaries.normed, stream.update);
  stream.residual = nullptr;
  stream.factor = {};
  stream.entered = sum.left;
}

void DeviceModel::Mix(const LoadedLayer& layer, const LoadedLayer* next, const Tokens& tokens,
                      DeviceStep step, const Temporaries& temporaries, Stream& stream) {
  layer_workspace_.Reset();  // stream.factor is in it: it is read before anything is taken
  if (EntersLate(layer)) return MixLate(layer, next, step, temporaries, stream);
  const Operand& normed = temporaries.normed;
  FloatMatrix weights = {};
  if (layer.reads_embeddings) {
    step.stream = WithEmbeddings(stream, tokens);
    stream.factor = {};
    layer.mixer->Enqueue(step, {}, stream.update);
  } else {
    weights = EnterBlock(layer.mixer_norm, layer.mixer_residual, step, stream, normed);
    stream.factor = {};
    if (layer.mixer_residual.connection == nullptr) step.output_factor = &stream.factor;
    layer.mixer->Enqueue(step, normed, stream.update);
  }
  Leave(layer.mixer_residual, step, weights, stream);
}

void DeviceModel::AddNgrams(const LoadedLayer& layer, const Tokens& tokens, DeviceStep step,
                            Stream& stream) {
  layer_workspace_.Reset();
  step.slots = layer.ngram_state.Of(step.slots);
  const bool several = stream.all.data != nullptr;
  if (!several) AddUp(stream), stream.residual = nullptr;
  layer.ngrams->Enqueue(step, tokens.ids, tokens.last_tokens, several ? stream.all : stream.x);
}

void DeviceModel::FeedForward(const LoadedLayer& layer, DeviceStep step, const Operand& normed,
                              Stream& stream) {
  layer_workspace_.Reset();  // as in Mix
  const FloatMatrix weights =
      EnterBlock(layer.feed_forward_norm, layer.feed_forward_residual, step, stream, normed);
  stream.factor = {};
  step.slots = layer.feed_forward_state.Of(step.slots);
  layer.feed_forward->Enqueue(step, normed, stream.update);
  Leave(layer.feed_forward_residual, step, weights, stream);
}

void DeviceModel::Embed(const Tokens& tokens, FloatMatrix x) {
  device_->Embed(table_, tokens.ids, tokens.rows, tokens.last_tokens, x);
}

DeviceModel::Temporaries DeviceModel::TakeTemporaries(size_t rows) {
  return {step_workspace_.TakeOperand(rows, hidden()),
          step_workspace_.Take(rows, handed_on_columns_),
          step_workspace_.Take(rows, hidden() / LateNorm::kSquares), step_workspace_.Take(rows, 1)};
}

void DeviceModel::RunLayers(std::span<const LoadedLayer> layers, size_t first, const Tokens& tokens,
                            const StatePool& states, const Temporaries& temporaries,
                            Purpose purpose, Stream& stream) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const LoadedLayer& layer = layers[i];
    const LayerState state = states.Layer(first + i);
    const bool has_pages = layer.state_layout.page_kind().rule != PageRule::kNone;
    DeviceStep step{device_,
                    &layer_workspace_,
                    tokens.rows,
                    {state.bases, state.base_stride, state.tails, state.tail_stride, state.pages,
                     state.page_stride},
                    has_pages ? tokens.pages[state.page_kind] : DevicePages{}};
    step.handed_on = temporaries.handed_on;
    step.state_only = purpose == Purpose::kState && i + 1 == layers.size();
    if (layer.ngrams != nullptr) AddNgrams(layer, tokens, step, stream);
    const LoadedLayer* const next = i + 1 < layers.size() ? &layers[i + 1] : nullptr;
    if (layer.mixer != nullptr) Mix(layer, next, tokens, step, temporaries, stream);
    if (step.state_only || layer.feed_forward == nullptr) continue;
    FeedForward(layer, step, temporaries.normed, stream);
  }
}

DeviceModel::Stream DeviceModel::Forward(const Tokens& tokens, const StatePool& states) {
  const DeviceRows& rows = tokens.rows;
  Stream stream{step_workspace_.Take(rows.tokens, hidden()),
                step_workspace_.Take(rows.tokens, hidden())};
  Embed(tokens, stream.x);
  if (!model_->embedding_norm.empty()) {
    model_->embedding_norm.Enqueue(*device_, {.x = stream.x, .keeps_normed = true});
  }
  if (model_->spec.streams > 1) {
    stream.all = step_workspace_.Take(rows.tokens, model_->spec.streams * hidden());
    EnqueueSpread(*device_, stream.x, stream.all);
  }
  RunLayers(model_->layers, 0, tokens, states, TakeTemporaries(rows.tokens), Purpose::kOutput,
            stream);
  if (stream.all.data != nullptr) CollapseAll(stream, rows);
  return stream;
}

void DeviceModel::Logits(const Stream& stream, FloatMatrix logits) {
  const Operand normed = step_workspace_.TakeOperand(stream.x.rows, hidden());
  Enter(model_->final_norm, {}, stream, normed);
  NormedLogits(normed, logits);
}

void DeviceModel::NormedLogits(const Operand& normed, FloatMatrix logits) {
  model_->lm_head.Enqueue(*device_, normed, logits);
  if (model_->spec.logits_cap != 0) device_->CapLogits(logits, model_->spec.logits_cap);
}

void DeviceModel::AddUp(const Stream& stream) {
  if (stream.residual != nullptr) device_->AddNorm(AddUpdate(stream));
}

absl::Status DeviceModel::status() const {
  if (!step_workspace_.status().ok()) return step_workspace_.status();
  return layer_workspace_.status();
}

}  // namespace rivulet
