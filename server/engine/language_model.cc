// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/language_model.h"

#include <algorithm>
#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/base/row_arithmetic.h"
#include "kernels/base/status.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/embedding/embedding.h"

namespace rivulet {
namespace {

struct Entered {
  ConstFloatMatrix input;    // what a mixer or feed-forward reads
  FloatMatrix weights = {};  // of its connection, for Leave
};

// What the connection makes of the streams x, or its norm.
Entered EnterStreams(const TrainedNorm& norm, const HyperConnection& connection, FloatMatrix x,
                     FloatMatrix normed, const LanguageModel::Lent& lent) {
  const FloatMatrix weights = connection.Collapse(x, normed, *lent.layer_workspace, *lent.threads);
  if (!norm.empty()) norm.Apply(normed, normed, *lent.threads);
  return {normed, weights};
}

// x, its norm in `normed`, or its norm in place of x.
Entered Enter(const TrainedNorm& norm, const LoadedResidual& residual, FloatMatrix x,
              FloatMatrix normed, const LanguageModel::Lent& lent) {
  if (residual.connection) return EnterStreams(norm, *residual.connection, x, normed, lent);
  if (norm.empty()) return {x};
  const FloatMatrix to = residual.keeps_normed ? x : normed;
  norm.Apply(x, to, *lent.threads);
  return {to};
}

// x = keep · x + add · norm(update), or as the connection says.
void Leave(const LoadedResidual& residual, ConstFloatMatrix weights, FloatMatrix update,
           FloatMatrix x, ThreadPool& threads) {
  if (residual.connection) return residual.connection->Expand(update, weights, x, threads);
  if (!residual.output_norm.empty()) residual.output_norm.Apply(update, update, threads);
  const float keep = residual.keep, add = residual.add;
  if (keep == 1 && add == 1) return AddRows(update, x, threads);
  ParallelRows(threads, x.rows, x.columns, [&](size_t row) {
    float* sum = x.row(row);
    const float* term = update.row(row);
    for (size_t i = 0; i < x.columns; ++i) sum[i] = keep * sum[i] + add * term[i];
  });
}

// logits = cap · tanh(logits / cap)
void Cap(FloatMatrix logits, float cap, ThreadPool& threads) {
  if (cap == 0) return;
  ParallelRows(threads, logits.rows, 4 * logits.columns,
               [&](size_t row) { SoftCap(cap, logits.row(row), logits.row(row), logits.columns); });
}

void Lap(const LanguageModel::Lent& lent, StepProfile::Part part) {
  if (lent.profile) lent.profile->Lap(part);
}

std::vector<const StateLayout*> LayoutsOf(std::span<const LoadedLayer> layers) {
  std::vector<const StateLayout*> layouts;
  for (const LoadedLayer& layer : layers) layouts.push_back(&layer.state_layout);
  return layouts;
}

}  // namespace

LanguageModel::LanguageModel(std::shared_ptr<const LoadedModel> model)
    : model_(std::move(model)), handed_on_columns_(model_->handed_on_columns()) {}

std::vector<const StateLayout*> LanguageModel::StateLayouts() const {
  return LayoutsOf(model_->layers);
}

std::vector<const StateLayout*> LanguageModel::PredictorLayouts() const {
  return LayoutsOf(model_->predictor->layers);
}

absl::Status LanguageModel::Forward(std::span<const uint32_t> ids,
                                    std::span<const Segment> segments, const StatePool& states,
                                    const Lent& lent, FloatMatrix x) const {
  if (lent.profile) lent.profile->Start();
  Embed(model_->embeddings, ids, x);
  if (!model_->embedding_norm.empty()) model_->embedding_norm.Apply(x, x, *lent.threads);
  Lap(lent, StepProfile::kEmbedding);
  const size_t streams = model_->spec.streams;
  if (streams == 1) return Layers(model_->layers, 0, ids, segments, states, lent, x);
  const FloatMatrix all = lent.step_workspace->Take(x.rows, streams * x.columns);
  SpreadToStreams(x, all, *lent.threads);
  RIVULET_RETURN_IF_ERROR(Layers(model_->layers, 0, ids, segments, states, lent, all));
  lent.layer_workspace->Reset();
  if (model_->last_connection == nullptr) {
    MeanOfStreams(all, x, *lent.threads);
  } else {
    model_->last_connection->Collapse(all, x, *lent.layer_workspace, *lent.threads);
  }
  return absl::OkStatus();
}

absl::Status LanguageModel::Layers(std::span<const LoadedLayer> layers, size_t first_layer,
                                   std::span<const uint32_t> ids, std::span<const Segment> segments,
                                   const StatePool& states, const Lent& lent, FloatMatrix x,
                                   Until until) const {
  LayerStep step{segments, {}, lent.layer_workspace, lent.threads};
  step.handed_on = lent.step_workspace->Take(x.rows, handed_on_columns_);
  for (size_t i = 0; i < layers.size(); ++i) {
    step.state = states.Layer(first_layer + i);
    const bool is_last = i + 1 == layers.size();
    RIVULET_RETURN_IF_ERROR(Layer(layers[i], ids, step, lent, x, is_last ? until : Until::kEnd));
  }
  return absl::OkStatus();
}

void LanguageModel::Fuse(std::span<const uint32_t> ids, ConstFloatMatrix normed, const Lent& lent,
                         FloatMatrix y) const {
  const LoadedPredictor& predictor = *model_->predictor;
  ThreadPool& threads = *lent.threads;
  lent.layer_workspace->Reset();
  const FloatMatrix both = lent.layer_workspace->Take(y.rows, 2 * y.columns);
  const FloatMatrix embedded = both.Columns(0, y.columns);
  Embed(model_->embeddings, ids, embedded);
  predictor.embedding_norm.Apply(embedded, embedded, threads);
  predictor.hidden_norm.Apply(normed, both.Columns(y.columns, y.columns), threads);
  predictor.fusion.Apply(both, y, threads);
}

absl::Status LanguageModel::Predict(std::span<const uint32_t> ids, ConstFloatMatrix normed,
                                    std::span<const Segment> segments, const StatePool& states,
                                    size_t first_layer, const Lent& lent, FloatMatrix y) const {
  const LoadedPredictor& predictor = *model_->predictor;
  Fuse(ids, normed, lent, y);
  RIVULET_RETURN_IF_ERROR(Layers(predictor.layers, first_layer, ids, segments, states, lent, y));
  predictor.final_norm.Apply(y, y, *lent.threads);
  return absl::OkStatus();
}

absl::Status LanguageModel::AdvancePredictor(std::span<const uint32_t> ids, ConstFloatMatrix normed,
                                             std::span<const Segment> segments,
                                             const StatePool& states, size_t first_layer,
                                             const Lent& lent) const {
  std::span<const LoadedLayer> layers = model_->predictor->layers;
  while (!layers.empty() && layers.back().mixer == nullptr) {
    layers = layers.first(layers.size() - 1);
  }
  const FloatMatrix y = lent.step_workspace->Take(normed.rows, normed.columns);
  Fuse(ids, normed, lent, y);
  return Layers(layers, first_layer, ids, segments, states, lent, y, Until::kLastMixer);
}

ConstFloatMatrix LanguageModel::WithEmbeddings(std::span<const uint32_t> ids, const Lent& lent,
                                               ConstFloatMatrix x) const {
  const FloatMatrix both = lent.layer_workspace->Take(x.rows, 2 * x.columns);
  Embed(model_->embeddings, ids, both.Columns(x.columns, x.columns));
  ParallelRows(*lent.threads, x.rows, x.columns,
               [&](size_t row) { std::copy_n(x.row(row), x.columns, both.row(row)); });
  return both;
}

absl::Status LanguageModel::Layer(const LoadedLayer& layer, std::span<const uint32_t> ids,
                                  LayerStep step, const Lent& lent, FloatMatrix x,
                                  Until until) const {
  Workspace& workspace = *lent.layer_workspace;
  ThreadPool& threads = *lent.threads;
  workspace.Reset();
  FloatMatrix normed = workspace.Take(x.rows, hidden());
  FloatMatrix update = workspace.Take(x.rows, hidden());
  if (layer.ngrams != nullptr) {
    LayerStep own = step;
    own.state = layer.ngram_state.Of(step.state);
    layer.ngrams->Apply(own, ids, x);
    Lap(lent, StepProfile::kEmbedding);
  }
  if (layer.mixer != nullptr) {
    const Entered in = layer.reads_embeddings
                           ? Entered{WithEmbeddings(ids, lent, x)}
                           : Enter(layer.mixer_norm, layer.mixer_residual, x, normed, lent);
    Lap(lent, StepProfile::kNormAndAdd);
    RIVULET_RETURN_IF_ERROR(layer.mixer->Forward(step, in.input, update));
    Lap(lent, StepProfile::kMixer);
    Leave(layer.mixer_residual, in.weights, update, x, threads);
  }
  if (layer.feed_forward == nullptr || until == Until::kLastMixer) return absl::OkStatus();
  const Entered in = Enter(layer.feed_forward_norm, layer.feed_forward_residual, x, normed, lent);
  Lap(lent, StepProfile::kNormAndAdd);
  step.state = layer.feed_forward_state.Of(step.state);
  layer.feed_forward->Apply(step, in.input, update);
  Lap(lent, StepProfile::kFeedForward);
  Leave(layer.feed_forward_residual, in.weights, update, x, threads);
  return absl::OkStatus();
}

void LanguageModel::Logits(ConstFloatMatrix x, const Lent& lent, FloatMatrix logits) const {
  if (lent.profile) lent.profile->Start();
  lent.layer_workspace->Reset();
  const FloatMatrix normed = lent.layer_workspace->Take(x.rows, x.columns);
  NormStream(x, lent, normed);
  NormedLogits(normed, lent, logits);
  Lap(lent, StepProfile::kHead);
}

void LanguageModel::NormStream(ConstFloatMatrix x, const Lent& lent, FloatMatrix y) const {
  if (!model_->final_norm.empty()) return model_->final_norm.Apply(x, y, *lent.threads);
  if (x.data == y.data) return;
  ParallelRows(*lent.threads, x.rows, x.columns,
               [&](size_t row) { std::copy_n(x.row(row), x.columns, y.row(row)); });
}

void LanguageModel::NormedLogits(ConstFloatMatrix normed, const Lent& lent,
                                 FloatMatrix logits) const {
  model_->lm_head.Apply(normed, logits, *lent.threads);
  Cap(logits, model_->spec.logits_cap, *lent.threads);
}

}  // namespace rivulet
