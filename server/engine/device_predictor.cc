// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/device_predictor.h"

#include <utility>

#include "kernels/base/aligned_buffer.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/device_step.h"
#include "kernels/mixers/row_preparation.h"

namespace rivulet {
namespace {

// As many layers as it takes to advance the state.
size_t LayersWithState(const LoadedPredictor& head) {
  size_t layers = head.layers.size();
  while (layers > 0 && head.layers[layers - 1].mixer == nullptr) --layers;
  return layers;
}

// Of each channel the number before, exactly.
ShortConvolution MakeShift(size_t channels, StateLayout& layout) {
  AlignedBuffer<float> taps(2 * channels);
  for (size_t i = 0; i < channels; ++i) taps[2 * i] = 1;
  return ShortConvolution(std::move(taps), {}, channels, 2, /*silu=*/false, "streams", layout);
}

}  // namespace

DevicePredictor::DevicePredictor(DeviceModel& model, Device* device)
    : model_(model),
      device_(device),
      head_(*model.model().predictor),
      first_layer_(model.model().layers.size()),
      state_layers_(LayersWithState(head_)),
      kept_(model.model().layers[0].state_layout.Empty()),
      shift_(MakeShift(model.hidden(), kept_)) {}

std::vector<const StateLayout*> DevicePredictor::StateLayouts() const {
  std::vector<const StateLayout*> layouts;
  for (const LoadedLayer& layer : head_.layers) layouts.push_back(&layer.state_layout);
  layouts.push_back(&kept_);
  return layouts;
}

FloatMatrix DevicePredictor::TakeInputs(const DeviceModel::Tokens& tokens) {
  model_.layer_workspace().Reset();
  const FloatMatrix inputs = model_.layer_workspace().Take(tokens.rows.tokens, 2 * model_.hidden());
  model_.Embed(tokens, EmbeddingsOf(inputs));
  return inputs;
}

// before [T, hidden] = the rows before those of x, which are kept.
void DevicePredictor::Shift(const DeviceModel::Tokens& tokens, const StatePool& states,
                            ConstFloatMatrix x, FloatMatrix before) {
  const LayerState state = states.Layer(first_layer_ + head_.layers.size());
  const DeviceStep step{device_,
                        &model_.layer_workspace(),
                        tokens.rows,
                        {state.bases, state.base_stride, state.tails, state.tail_stride}};
  RowPreparation rows(step, shift_.OnDevice(*device_, x));
  rows.HeadsInto(x, 1, {.padded = x.columns}, before);
  rows.Enqueue();
}

// x [T, hidden] = what the head's layers begin with.
void DevicePredictor::Fuse(FloatMatrix inputs, FloatMatrix x) {
  constexpr uint32_t kNumbersOfAWarp = 256;
  head_.embedding_norm.Enqueue(*device_, {.x = EmbeddingsOf(inputs), .keeps_normed = true});
  head_.hidden_norm.Enqueue(*device_, {.x = StreamsOf(inputs), .keeps_normed = true});
  const Operand operand = model_.layer_workspace().TakeOperand(inputs.rows, inputs.columns);
  const auto columns = static_cast<uint32_t>(inputs.columns);
  device_->Finish({.o = inputs,
                   .width = columns,
                   .padded = columns,
                   .norm_width = kNumbersOfAWarp,
                   .order = FinishOrder::kGateOnly,
                   .gate_f = Activation::kIdentity,
                   .y = operand});
  head_.fusion.Enqueue(*device_, operand, x);
}

void DevicePredictor::Follow(const DeviceModel::Tokens& tokens, ConstFloatMatrix stream,
                             const StatePool& states) {
  const size_t rows = tokens.rows.tokens;
  DeviceModel::Stream own{model_.workspace().Take(rows, model_.hidden()),
                          model_.workspace().Take(rows, model_.hidden())};
  const DeviceModel::Temporaries temporaries = model_.TakeTemporaries(rows);
  const FloatMatrix inputs = TakeInputs(tokens);
  device_->CopyColumns(stream, own.x);
  const TrainedNorm& norm = model_.model().final_norm;
  if (!norm.empty()) norm.Enqueue(*device_, {.x = own.x, .keeps_normed = true});
  Shift(tokens, states, own.x, StreamsOf(inputs));
  Fuse(inputs, own.x);
  model_.RunLayers(std::span(head_.layers).first(state_layers_), first_layer_, tokens, states,
                   temporaries, DeviceModel::Purpose::kState, own);
}

DevicePredictor::Guesses DevicePredictor::TakeGuesses(size_t rows) {
  return {{model_.workspace().Take(rows, model_.hidden()),
           model_.workspace().Take(rows, model_.hidden())},
          model_.TakeTemporaries(rows)};
}

void DevicePredictor::Guess(const DeviceModel::Tokens& tokens, bool follows_guess,
                            const StatePool& states, const Guesses& guesses, FloatMatrix logits) {
  DeviceModel::Stream own = guesses.stream;
  const FloatMatrix inputs = TakeInputs(tokens);
  if (follows_guess) {
    device_->CopyColumns(own.x, StreamsOf(inputs));
  } else {
    // Nothing reads the rows that are kept of these tokens: any numbers will do.
    Shift(tokens, states, EmbeddingsOf(inputs), StreamsOf(inputs));
  }
  Fuse(inputs, own.x);
  model_.RunLayers(head_.layers, first_layer_, tokens, states, guesses.temporaries,
                   DeviceModel::Purpose::kOutput, own);
  model_.Enter(head_.final_norm, {.keeps_normed = true}, own, guesses.temporaries.normed);
  model_.NormedLogits(guesses.temporaries.normed, logits);
}

}  // namespace rivulet
