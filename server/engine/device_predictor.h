// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Guesses by the model's own head for further tokens (LoadedPredictor) on a device: what Predictor
// is on the CPU. Its state lies in the slots of the sessions, behind the model's layers:
//
//   its layers'  keys and values of its attention, a row for each token
//   kept         the streams behind the tokens since the border, and behind the one before it: a
//                short convolution's state with a window of two, which is how a token finds the
//                stream before it
//
// On the CPU the head runs late, here in the step of the tokens: as far as its last attention,
// whose keys and values are all that later tokens need. So a guess finds the rows of all tokens
// before it. A step may leave the head out; then the slots have no state of the head from there on,
// for which the engine keeps HeadMarks.
//
// It enqueues operations and waits for nothing. Threading: engine thread only.
#ifndef RIVULET_SERVER_ENGINE_DEVICE_PREDICTOR_H_
#define RIVULET_SERVER_ENGINE_DEVICE_PREDICTOR_H_

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/device/device.h"
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/state.h"
#include "server/engine/device_model.h"
#include "server/engine/state_pool.h"

namespace rivulet {

class DevicePredictor {
 public:
  // `model` has a predictor. Both outlive this.
  DevicePredictor(DeviceModel& model, Device* device);

  // Of its own state, which the states have behind the model's layers.
  std::vector<const StateLayout*> StateLayouts() const;

  // After Forward of these tokens, which left `stream` [T, hidden], added up.
  void Follow(const DeviceModel::Tokens& tokens, ConstFloatMatrix stream, const StatePool& states);

  // What is kept from one guess to the next.
  struct Guesses {
    DeviceModel::Stream stream;  // x [rows, hidden]: what the head left of the last tokens, normed
    DeviceModel::Temporaries temporaries;
  };
  // Until the model's Reset. Taken first after each Reset, it is the same memory, as it was left.
  Guesses TakeGuesses(size_t rows);

  // logits [N, vocab] of the tokens behind these N, one of each row. The first of them follow what
  // the slots hold; `follows_guess`: those that follow them, of the rows of the last call, which
  // left them in `guesses` [N]. What it leaves in the slots is behind the sessions' last tokens.
  // REQUIRES: none of the tokens folds.
  void Guess(const DeviceModel::Tokens& tokens, bool follows_guess, const StatePool& states,
             const Guesses& guesses, FloatMatrix logits);

 private:
  // Embeddings and streams side by side, [T, 2 · hidden].
  FloatMatrix TakeInputs(const DeviceModel::Tokens& tokens);
  FloatMatrix EmbeddingsOf(FloatMatrix inputs) const { return inputs.Columns(0, model_.hidden()); }
  FloatMatrix StreamsOf(FloatMatrix inputs) const {
    return inputs.Columns(model_.hidden(), model_.hidden());
  }
  void Shift(const DeviceModel::Tokens& tokens, const StatePool& states, ConstFloatMatrix x,
             FloatMatrix before);
  void Fuse(FloatMatrix inputs, FloatMatrix x);

  DeviceModel& model_;
  Device* device_;
  const LoadedPredictor& head_;
  const size_t first_layer_;   // of its own, in StatePool
  const size_t state_layers_;  // of its layers, those that end with its last mixer
  StateLayout kept_;
  ShortConvolution shift_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_DEVICE_PREDICTOR_H_
