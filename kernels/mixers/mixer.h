// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The contract between a sequence mixer and everything above it. A mixer maps a layer's normed
// input to its contribution to the residual stream: projections, short convolutions, the recurrence
// over kernels/recurrence, output norm and gate, output projection. The engine sees nothing else of
// it. The list of mixers is mixer_config.h.
//
// A Mixer is immutable after it is made and holds no session's state: state lives in slots whose
// layout it declares. It knows no request, session, config.json or RPC.
//
// Bits: for every token the output depends only on the session's own tokens. Any cut of them into
// segments, any company in the step, any slots and any number of threads give the same bits, and so
// does folding in place or into another slot (kernels/mixers/mixer_suite.h checks all of it).
#ifndef RIVULET_KERNELS_MIXERS_MIXER_H_
#define RIVULET_KERNELS_MIXERS_MIXER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/mixers/parameter_source.h"
#include "kernels/recurrence/layer_step.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

class Device;
struct DeviceStep;
struct Operand;

class Mixer {
 public:
  virtual ~Mixer() = default;

  // The planes that one session of this layer needs. Nothing of them needs an initial value: at
  // positions below C the base reads as zero regardless of its bytes.
  virtual const StateLayout& state_layout() const = 0;

  // The most tokens that a session may hold: after them Forward is not called. UINT64_MAX: any
  // number.
  virtual uint64_t max_tokens() const { return UINT64_MAX; }

  // The columns of LayerStep::handed_on that the layer writes or reads; 0: it does not use it.
  virtual size_t handed_on_columns() const { return 0; }

  // y [T, hidden] = the mixer's output for x [T, hidden], both fp32. Advances the state of every
  // segment's slots; touches no other slot. x and y must not overlap.
  // Fails only for device errors; the state of the step's segments is then undefined.
  virtual absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const = 0;

  // The same on the device that the mixer was made for (MixerOptions::device): enqueues it.
  // REQUIRES: runs_on_device().
  virtual void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const;
  virtual bool runs_on_device() const { return false; }
  // Whether Enqueue can take an input without the factor of its norm (DeviceStep::input_factor) and
  // add its output to the residual stream (DeviceStep::sum).
  virtual bool takes_factor() const { return false; }
};

// What a log-linear mixer does with more tokens than its levels reach (docs/architecture.md#state).
enum class LevelOverflow : uint8_t {
  kError,  // max_tokens is where they end
  kClamp,  // the last level holds all that is older
};

// Choices that come from flags and not from the checkpoint.
struct MixerOptions {
  DType state_dtype = DType::kFloat32;  // how bases store matrices: kFloat32 or kBFloat16
  // --kv-dtype: keys and values of softmax attention, kFloat32 or kBFloat16. None: as KvDType says.
  std::optional<DType> kv_dtype = std::nullopt;
  LevelOverflow level_overflow = LevelOverflow::kError;  // --level-overflow
  size_t fold_interval = kFoldInterval;                  // C of the device, 16 or 32
  Device* device = nullptr;  // that runs the layers, and outlives them; null: the CPU
  // There will be drafts: tails can forget them, where the layers run on the CPU
  // (StateLayout::forgets).
  bool drafts = false;

  // kv_dtype, or kBFloat16 on a device whose products round to bf16, or kFloat32.
  DType KvDType() const;
  // An empty layout for a layer's state.
  StateLayout NewLayout() const;
};

// What a layer is made from, beside its config. Borrowed for the call.
struct MixerSource {
  size_t hidden;  // width of the residual stream
  ParameterSource& parameters;
  MixerOptions options;
};

// A config whose heads' states have the type that the source's options ask for.
template <typename Config>
Config WithStateDType(Config config, const MixerSource& source) {
  config.shape.state_dtype = source.options.state_dtype;
  return config;
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MIXER_H_
