// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The forward pass on a device: what LanguageModel is on the CPU. It enqueues operations and waits
// for nothing.
//
// Threading: engine thread only.
#ifndef RIVULET_SERVER_ENGINE_DEVICE_MODEL_H_
#define RIVULET_SERVER_ENGINE_DEVICE_MODEL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/device_step.h"
#include "model_loader/loaded_model.h"
#include "server/engine/state_pool.h"

namespace rivulet {

class DeviceModel {
 public:
  // `model` was loaded for `device` (MixerOptions::device); both outlive this. Copies the embedding
  // table to the device.
  static absl::StatusOr<std::unique_ptr<DeviceModel>> Make(std::shared_ptr<const LoadedModel> model,
                                                           Device* device);

  std::vector<const StateLayout*> StateLayouts() const;

  // What a step's layers share.
  struct Tokens {
    const uint32_t* ids;  // [T], UINT32_MAX standing for last_tokens[tail of the row]
    DeviceRows rows;
    const uint32_t* last_tokens;
    std::span<const DevicePages> pages;  // of each kind that the states have
  };

  // The residual stream of a step's tokens [T, hidden] after the last layer, as x and an update
  // that is to be added to it as `residual` says. A model with several streams has them side by
  // side in `all` [T, N · hidden] until the last layer is done; then x is what its last connection
  // makes of them.
  struct Stream {
    FloatMatrix x;
    FloatMatrix update;
    RowFactor factor = {};                     // of the update
    const LoadedResidual* residual = nullptr;  // null: there is no update
    FloatMatrix all = {};
    // The next mixer's input is there, and this is the factor of its norm; not given: it is not.
    RowFactor entered = {};
  };
  Stream Forward(const Tokens& tokens, const StatePool& states);

  // logits [T, vocab] of all tokens. `stream` is used up.
  void Logits(const Stream& stream, FloatMatrix logits);
  // Adds up the stream, so that GatherRows may take rows of x.
  void AddUp(const Stream& stream);

  // --- parts of these, for the head that guesses further tokens (device_predictor.h) -----------

  // What layers need beside a stream, of the workspace.
  struct Temporaries {
    Operand normed;         // [T, hidden]
    FloatMatrix handed_on;  // as DeviceStep
    // Of a late norm: [T, hidden / LateNorm::kSquares] and [T, 1].
    FloatMatrix squares, factors;
  };
  Temporaries TakeTemporaries(size_t rows);
  // What is wanted of layers: the stream after them and their state, or the state alone, which
  // the last of them need not run to its end for.
  enum class Purpose { kOutput, kState };
  // The state of layers[0] is the states' layer number `first`.
  void RunLayers(std::span<const LoadedLayer> layers, size_t first, const Tokens& tokens,
                 const StatePool& states, const Temporaries& temporaries, Purpose purpose,
                 Stream& stream);
  void Embed(const Tokens& tokens, FloatMatrix x);
  // Adds the update, and y = the norm of what a block with this residual reads.
  void Enter(const TrainedNorm& norm, const LoadedResidual& residual, const Stream& stream,
             const Operand& y);
  // logits [T, vocab] = output map(normed [T, hidden])
  void NormedLogits(const Operand& normed, FloatMatrix logits);

  // --- temporaries -----------------------------------------------------------------------------

  // Frees the temporaries of a step.
  void Reset() { step_workspace_.Reset(); }
  DeviceWorkspace& workspace() { return step_workspace_; }
  DeviceWorkspace& layer_workspace() { return layer_workspace_; }  // RunLayers resets it
  // Not OK: the device had no memory for a step's temporaries.
  absl::Status status() const;

  const LoadedModel& model() const { return *model_; }
  size_t hidden() const { return model_->spec.hidden; }
  size_t vocab() const { return model_->spec.vocab; }

 private:
  DeviceModel(std::shared_ptr<const LoadedModel> model, Device* device)
      : model_(std::move(model)),
        device_(device),
        handed_on_columns_(model_->handed_on_columns()),
        step_workspace_(device),
        layer_workspace_(device) {}

  // What is to be done to the stream next: its update.
  AddNormCall AddUpdate(const Stream& stream) const;
  // Whether a layer's mixer reads its input without the factor of the norm. It does not depend on
  // the step. Only where no feed-forward follows the mixer: then a mixer's update can be added and
  // normed for the next mixer at once.
  bool EntersLate(const LoadedLayer& layer) const;
  LateNorm NormOf(const LoadedLayer& layer, const Temporaries& temporaries) const;
  // Enter of such a layer, unless the mixer before it has done it. Returns the factor.
  RowFactor EnterLate(const LoadedLayer& layer, const Temporaries& temporaries,
                      const Stream& stream);
  // A mixer that reads its input so. `next`: the layer behind it; null: there is none.
  void MixLate(const LoadedLayer& layer, const LoadedLayer* next, DeviceStep step,
               const Temporaries& temporaries, Stream& stream);
  // Enter of any block. Returns what Leave needs to make the next streams.
  FloatMatrix EnterBlock(const TrainedNorm& norm, const LoadedResidual& residual,
                         const DeviceStep& step, const Stream& stream, const Operand& y);
  void Leave(const LoadedResidual& residual, const DeviceStep& step, ConstFloatMatrix weights,
             Stream& stream);
  void CollapseAll(const Stream& stream, const DeviceRows& rows);
  // The input of a mixer that reads embeddings.
  FloatMatrix WithEmbeddings(const Stream& stream, const Tokens& tokens);
  void Mix(const LoadedLayer& layer, const LoadedLayer* next, const Tokens& tokens, DeviceStep step,
           const Temporaries& temporaries, Stream& stream);
  void AddNgrams(const LoadedLayer& layer, const Tokens& tokens, DeviceStep step, Stream& stream);
  void FeedForward(const LoadedLayer& layer, DeviceStep step, const Operand& normed,
                   Stream& stream);

  std::shared_ptr<const LoadedModel> model_;
  Device* device_;
  size_t handed_on_columns_;
  DeviceTable table_;
  DeviceWorkspace step_workspace_, layer_workspace_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_DEVICE_MODEL_H_
