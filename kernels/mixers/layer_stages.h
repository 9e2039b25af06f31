// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The stages that a mixer's layer is composed of:
//
//   Projection           one linear map of the input; its columns are declared in one place
//   PartConvolution      the short convolution over some of those columns
//   PaddedHeads, Rotate  queries, keys and values as the recurrence reads them
//   RunRecurrence        the recurrence, where it is a declared one
//   HeadOutput           norm of each head, gate, output projection
//
// A layer holds the stages that it needs and calls them in order (gla/gla_layer.cc is an example).
// A stage knows nothing about the others, and there is no base class of layers.
//
// Temporaries and results are in the step's workspace and live until it is reset. Nothing is
// allocated per step.
//
// Each stage counts its time in the step's StageTimes, if a benchmark asks for them.
//
// Threading: stages are constant after construction; a step belongs to one thread.
#ifndef RIVULET_KERNELS_MIXERS_LAYER_STAGES_H_
#define RIVULET_KERNELS_MIXERS_LAYER_STAGES_H_

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/parallel.h"
#include "kernels/base/tensor_view.h"
#include "kernels/mixers/fla_output.h"
#include "kernels/mixers/mixer.h"
#include "kernels/mixers/parameter_source.h"
#include "kernels/mixers/row_preparation.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/ops/rope/rope.h"
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/state.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {

// --- projection --------------------------------------------------------------------------------

// Some columns of a projection, taken from the tensors `tensor`.weight [columns, inputs] and, with
// a bias, `tensor`.bias [columns]. Adjacent parts with the same tensor split its rows in order,
// unless `rows` says which rows of the tensor are the part's.
struct ProjectionPart {
  std::string tensor;
  size_t columns = 0;  // 0: this layer does not have the part, and its tensor is not taken
  bool bias = false;
  RowBlocks rows = {};
};

inline constexpr size_t kMaxProjectionParts = 8;

// A projection's result, part by part: [T, columns of the part] each. A part that the layer does
// not have is a view with null data.
using Projected = std::array<FloatMatrix, kMaxProjectionParts>;

class Projection {
 public:
  // Takes all parts as one linear map of `inputs` numbers.
  Projection(const std::vector<ProjectionPart>& parts, size_t inputs, ParameterSource& parameters);

  // Of x [T, inputs].
  Projected Apply(const LayerStep& step, ConstFloatMatrix x) const;
  Projected Enqueue(const DeviceStep& step, const Operand& x) const;
  // The same of an input without the factor of its norm (step.input_factor), for an operation that
  // does the product as well. REQUIRES: no bias.
  ProjectionCall CallOf(const DeviceStep& step, const Operand& x) const;
  // Of the outputs y [T, outputs].
  Projected Parts(FloatMatrix y) const;

  size_t columns(size_t part) const { return columns_[part]; }

 private:
  std::array<size_t, kMaxProjectionParts> columns_ = {};
  Linear linear_;
};

// A linear map of a single tensor: `tensor`.weight [outputs, inputs], and `tensor`.bias.
Linear TakeLinear(const std::string& tensor, size_t outputs, size_t inputs, bool bias,
                  ParameterSource& parameters);

// [T, outputs] of x [T, inputs].
FloatMatrix Project(const LayerStep& step, const Linear& linear, ConstFloatMatrix x);

// --- convolution -------------------------------------------------------------------------------

// The short convolution of adjacent parts (docs/mixers.md#short-convolution). It is depthwise, so
// it is one convolution with one plane of state even where each part has tensors of its own.
struct PartConvolutionConfig {
  // `tensor`.weight [channels, 1, window] for each part, or one tensor for all of them.
  std::vector<std::string> tensors;
  size_t first = 0;   // part
  size_t parts = 1;   // all of which the layer has
  size_t window = 0;  // in [2, kMaxConvolutionWindow]; 0: no convolution
  bool bias = false;  // `tensor`.bias [channels]
  bool silu = true;   // SiLU after the convolution
};

// fla's names for the convolutions of q, k and v, the first three parts of the projection.
PartConvolutionConfig FlaConvolution(size_t window, bool bias);

class PartConvolution {
 public:
  // Takes the tensors and adds the planes "conv.before" and "conv.tail" to `layout`.
  PartConvolution(const PartConvolutionConfig& config, const Projection& projection,
                  ParameterSource& parameters, StateLayout& layout);

  // `projected` with its parts convolved. Advances the state of the step's segments.
  Projected Apply(const LayerStep& step, const Projected& projected) const;

  // What a device's row preparation needs to know of it; window 0: no convolution.
  DeviceConvolution OnDevice(const DeviceStep& step, const Projected& projected) const;

 private:
  size_t first_, parts_;
  ShortConvolution convolution_;
};

// --- preparation -------------------------------------------------------------------------------

// D^{-1/2}.
float InverseRoot(size_t key_dim);

// [T, H * padded width] = scale · f(x [T, H * width]), zeros in the padding of each head. It is x
// itself when there is nothing to compute and nothing to pad.
FloatMatrix PaddedHeads(const LayerStep& step, FloatMatrix x, size_t heads,
                        Activation f = Activation::kIdentity, float scale = 1.0f);

// Rotates q and k [T, heads * head_stride] in place by the positions of their tokens.
void Rotate(const LayerStep& step, const Rope& rope, size_t head_stride, FloatMatrix q,
            FloatMatrix k);

// y [T, columns], row by row: row(x's row, y's row).
template <typename Row>
FloatMatrix MapRows(const LayerStep& step, ConstFloatMatrix x, size_t columns, Row&& row) {
  const FloatMatrix y = step.workspace->Take(x.rows, columns);
  ParallelRows(*step.pool, x.rows, columns, [&](size_t t) { row(x.row(t), y.row(t)); });
  return y;
}

// --- recurrence --------------------------------------------------------------------------------

// The recurrence's outputs [T, H * padded E].
FloatMatrix RunRecurrence(const LayerStep& step, const SumRecurrence& recurrence,
                          const TokenInputs& inputs);

FloatMatrix EnqueueRecurrence(const DeviceStep& step, const SumRecurrence& recurrence,
                              const TokenInputs& inputs);

// --- output ------------------------------------------------------------------------------------

// The layer's last product: y [T, hidden] of x [T, inputs].
void ProjectOutput(const LayerStep& step, const Linear& linear, ConstFloatMatrix x, FloatMatrix y);

// The input of that product on a device: norm and gate of heads, in one operation.
struct GatedNorm {
  size_t heads = 0;
  size_t width = 0;                    // E, of a head
  size_t norm_width = 0;               // numbers that are normed together
  std::span<const float> weight = {};  // repeated over the columns; empty: ones
  float eps = 0;
  FinishOrder order = FinishOrder::kNormThenGate;
  Activation gate_f = Activation::kSilu;  // of the gate
};

// [T, H*E] of o [T, H * padded E] and gate [T, H*E] or null data without a gate.
Operand EnqueueNormAndGate(const DeviceStep& step, ConstFloatMatrix o, ConstFloatMatrix gate,
                           const GatedNorm& how);

// The same of a recurrence's outputs, but for the factor of each row's norm, which it leaves to
// what reads the layer's output (step.output_factor). It prepares `rows`, all of which are the
// recurrence's inputs, too, and does the product before them; `projection` null: that has been
// done. REQUIRES: LeavesFactor.
Operand EnqueueGatedRecurrence(const DeviceStep& step, const SumRecurrence& recurrence,
                               const RowPreparation& rows, const TokenInputs& inputs,
                               ConstFloatMatrix gate, const GatedNorm& how,
                               const ProjectionCall* projection);
// Whether the norm is such a factor, and the device and the caller can do it that way. The map that
// comes next must not have a bias.
bool LeavesFactor(const DeviceStep& step, const SumRecurrence& recurrence, const GatedNorm& how);
// The same for any caller.
bool CanLeaveFactor(const SumRecurrence& recurrence, const GatedNorm& how);

struct HeadOutputConfig {
  size_t heads = 0;
  size_t width = 0;                   // E, of a head
  std::string norm = "o_norm";        // `norm`.weight [E]; empty: the norm has no weight
  float norm_eps = 0;                 // of the norm
  std::string projection = "o_proj";  // `projection`.weight [hidden, H*E]
  Activation gate_f = Activation::kSilu;
};

// What fla's layers do (fla_output.h).
HeadOutputConfig FlaHeadOutput(const FlaOutput& output, size_t heads, size_t width);

// y = (rms(o) · weight · silu(gate)) W, or with another function of the gate, rms over each head
// (docs/mixers.md#norms).
class HeadOutput {
 public:
  HeadOutput(const HeadOutputConfig& config, const MixerSource& source);

  // o [T, H * padded E], gate [T, H*E] or null data without a gate, y [T, hidden].
  void Apply(const LayerStep& step, ConstFloatMatrix o, ConstFloatMatrix gate, FloatMatrix y) const;
  void Enqueue(const DeviceStep& step, ConstFloatMatrix o, ConstFloatMatrix gate,
               FloatMatrix y) const;

 private:
  size_t heads_, width_;
  float norm_eps_;
  Activation gate_f_;
  AlignedBuffer<float> norm_;  // [E] or empty
  Linear projection_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LAYER_STAGES_H_
