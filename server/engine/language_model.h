// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The forward pass: token ids → residual stream → logits, with every layer's state advanced on the
// way. Each layer is x += mixer(norm(x)); x += feed_forward(norm(x)), with what its spec says
// otherwise (ResidualSpec). A model with hyper-connections has several residual streams, which
// begin as the embeddings and whose mean is what the last layer leaves. All of it is fp32.
//
// It allocates only from the workspaces lent to it, samples nothing, and knows no row's owner.
// A token's numbers depend on its own session's tokens alone (kernels/mixers/mixer.h,
// docs/architecture.md#bit-equality).
//
// Threading: constant after construction; one call at a time for each ThreadPool.
#ifndef RIVULET_SERVER_ENGINE_LANGUAGE_MODEL_H_
#define RIVULET_SERVER_ENGINE_LANGUAGE_MODEL_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/recurrence/layer_step.h"
#include "kernels/recurrence/state.h"
#include "model_loader/loaded_model.h"
#include "server/engine/state_pool.h"

namespace rivulet {

// Where a step's time goes; for the benchmark. Seconds since the last Reset.
class StepProfile {
 public:
  enum Part { kEmbedding, kNormAndAdd, kMixer, kFeedForward, kHead, kSampling, kParts };

  void Reset() { seconds_ = {}; }
  double seconds(Part part) const { return seconds_[part]; }
  void Start() { last_ = Clock::now(); }
  // Counts the time since the last Start or Lap towards `part`.
  void Lap(Part part) {
    const Clock::time_point now = Clock::now();
    seconds_[part] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::array<double, kParts> seconds_{};
  Clock::time_point last_;
};

class LanguageModel {
 public:
  explicit LanguageModel(std::shared_ptr<const LoadedModel> model);

  // What a step lends to the pass.
  struct Lent {
    Workspace* layer_workspace;  // reset after each layer
    Workspace* step_workspace;   // the caller's, who resets it after the step
    ThreadPool* threads;
    StepProfile* profile = nullptr;  // null: not timed
  };

  // The layers' state layouts, for StatePool.
  std::vector<const StateLayout*> StateLayouts() const;

  // x [T, hidden] = the residual stream after the last layer for ids [T]; advances the slots of
  // `segments`. Rows of x that no segment covers are undefined.
  // REQUIRES: every id < vocab. Fails only for device errors; see Mixer::Forward.
  absl::Status Forward(std::span<const uint32_t> ids, std::span<const Segment> segments,
                       const StatePool& states, const Lent& lent, FloatMatrix x) const;

  // logits [N, vocab] = head(norm(x [N, hidden])). Resets the workspace.
  void Logits(ConstFloatMatrix x, const Lent& lent, FloatMatrix logits) const;

  // The same with the predictor (LoadedPredictor) in place of the layers. Row i of `normed`
  // [T, hidden] belongs to the token before ids[i]: what NormStream or this left for it, or zeros
  // for the first token of a session. y [T, hidden] is normed too: NormedLogits(y) are those of the
  // tokens behind ids. Its layers have state of their own, the layers of `states` from
  // `first_layer` on, which moves on with ids. REQUIRES: the model has a predictor; y is not
  // `normed`.
  std::vector<const StateLayout*> PredictorLayouts() const;
  absl::Status Predict(std::span<const uint32_t> ids, ConstFloatMatrix normed,
                       std::span<const Segment> segments, const StatePool& states,
                       size_t first_layer, const Lent& lent, FloatMatrix y) const;
  // The same for the state alone: what comes behind the last mixer is left out.
  absl::Status AdvancePredictor(std::span<const uint32_t> ids, ConstFloatMatrix normed,
                                std::span<const Segment> segments, const StatePool& states,
                                size_t first_layer, const Lent& lent) const;
  // y = the model's last norm of x, which Forward left; y may be x itself.
  void NormStream(ConstFloatMatrix x, const Lent& lent, FloatMatrix y) const;
  void NormedLogits(ConstFloatMatrix normed, const Lent& lent, FloatMatrix logits) const;

  const LoadedModel& model() const { return *model_; }
  size_t hidden() const { return model_->spec.hidden; }
  size_t vocab() const { return model_->spec.vocab; }

 private:
  enum class Until { kEnd, kLastMixer };

  // `step` has the layer's state; x [T, streams · hidden].
  absl::Status Layer(const LoadedLayer& layer, std::span<const uint32_t> ids, LayerStep step,
                     const Lent& lent, FloatMatrix x, Until until = Until::kEnd) const;
  // The state of layers[0] is the pool's layer number `first_layer`. `until`: of the last one.
  absl::Status Layers(std::span<const LoadedLayer> layers, size_t first_layer,
                      std::span<const uint32_t> ids, std::span<const Segment> segments,
                      const StatePool& states, const Lent& lent, FloatMatrix x,
                      Until until = Until::kEnd) const;
  // What the predictor's first layer reads.
  void Fuse(std::span<const uint32_t> ids, ConstFloatMatrix normed, const Lent& lent,
            FloatMatrix y) const;
  // What the layer's mixer reads beside the tokens' embeddings.
  ConstFloatMatrix WithEmbeddings(std::span<const uint32_t> ids, const Lent& lent,
                                  ConstFloatMatrix x) const;

  std::shared_ptr<const LoadedModel> model_;
  size_t handed_on_columns_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_LANGUAGE_MODEL_H_
