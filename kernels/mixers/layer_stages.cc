// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/layer_stages.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/device/device_operations.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

LinearPart LinearPartOf(const ProjectionPart& part) {
  return {.name = part.tensor + ".weight",
          .outputs = part.columns,
          .bias = part.bias ? part.tensor + ".bias" : "",
          .rows = part.rows};
}

// The tensors named `tensor` and `suffix`, of shape [channels, inner...], one after the other.
AlignedBuffer<float> TakeConvolutionTensors(const PartConvolutionConfig& config,
                                            const std::vector<size_t>& channels, const char* suffix,
                                            const std::vector<size_t>& inner,
                                            ParameterSource& parameters) {
  std::vector<AlignedBuffer<float>> taken;
  size_t size = 0;
  for (size_t i = 0; i < config.tensors.size(); ++i) {
    std::vector<size_t> shape = {channels[i]};
    shape.insert(shape.end(), inner.begin(), inner.end());
    taken.push_back(parameters.TakeVector(config.tensors[i] + suffix, shape));
    size += taken.back().size();
  }
  AlignedBuffer<float> result(size);
  float* to = result.data();
  for (const AlignedBuffer<float>& part : taken) to = std::copy_n(part.data(), part.size(), to);
  return result;
}

// The channels of each of the config's tensors. transformers cuts the one tensor that it keeps into
// equal thirds when it writes OLMo Hybrid, so tensors that add up are as good as those of the
// parts.
std::vector<size_t> ChannelsOf(const PartConvolutionConfig& config, const Projection& projection,
                               const ParameterSource& parameters) {
  std::vector<size_t> channels(config.tensors.size()), stored;
  for (size_t i = 0; i < config.parts; ++i) {
    channels[channels.size() == 1 ? 0 : i] += projection.columns(config.first + i);
  }
  for (const std::string& tensor : config.tensors) {
    const std::string name = tensor + ".weight";
    const auto shape = parameters.Has(name) ? parameters.Shape(name) : std::vector<size_t>();
    stored.push_back(shape.empty() ? 0 : shape[0]);
  }
  const auto sum = [](const std::vector<size_t>& of) {
    return std::accumulate(of.begin(), of.end(), size_t{0});
  };
  return sum(stored) == sum(channels) ? stored : channels;
}

bool Aligned(FloatMatrix x) {
  return reinterpret_cast<uintptr_t>(x.data) % kAlignment == 0 && x.stride % kBlock == 0;
}

}  // namespace

Projection::Projection(const std::vector<ProjectionPart>& parts, size_t inputs,
                       ParameterSource& parameters) {
  RIVULET_CHECK(parts.size() <= kMaxProjectionParts, "too many parts of a projection");
  std::vector<LinearPart> tensors;
  for (size_t i = 0; i < parts.size(); ++i) {
    columns_[i] = parts[i].columns;
    if (parts[i].columns == 0) continue;
    LinearPart part = LinearPartOf(parts[i]);
    const bool split = part.rows.tensor_rows == 0;
    if (split && !tensors.empty() && tensors.back().name == part.name) {
      tensors.back().outputs += part.outputs;
    } else {
      tensors.push_back(std::move(part));
    }
  }
  linear_ = parameters.TakeLinear(tensors, inputs);
}

Projected Projection::Apply(const LayerStep& step, ConstFloatMatrix x) const {
  return Parts(Project(step, linear_, x));
}

Projected Projection::Enqueue(const DeviceStep& step, const Operand& x) const {
  const FloatMatrix y = step.workspace->Take(x.rows, linear_.outputs());
  linear_.Enqueue(*step.device, x, y);
  return Parts(y);
}

ProjectionCall Projection::CallOf(const DeviceStep& step, const Operand& x) const {
  return {linear_.on_device(), x, step.input_factor,
          step.workspace->Take(x.rows, linear_.outputs())};
}

Projected Projection::Parts(FloatMatrix y) const {
  Projected result;
  size_t first = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i] != 0) result[i] = y.Columns(first, columns_[i]);
    first += columns_[i];
  }
  return result;
}

Linear TakeLinear(const std::string& tensor, size_t outputs, size_t inputs, bool bias,
                  ParameterSource& parameters) {
  return parameters.TakeLinear({LinearPartOf({tensor, outputs, bias})}, inputs);
}

FloatMatrix Project(const LayerStep& step, const Linear& linear, ConstFloatMatrix x) {
  const StageTimer timer(step.times, Stage::kProjection, linear.weight_bytes());
  const FloatMatrix y = step.workspace->Take(x.rows, linear.outputs());
  linear.Apply(x, y, *step.pool);
  return y;
}

PartConvolutionConfig FlaConvolution(size_t window, bool bias) {
  return {.tensors = {"q_conv1d", "k_conv1d", "v_conv1d"},
          .first = 0,
          .parts = 3,
          .window = window,
          .bias = bias};
}

PartConvolution::PartConvolution(const PartConvolutionConfig& config, const Projection& projection,
                                 ParameterSource& parameters, StateLayout& layout)
    : first_(config.first), parts_(config.parts) {
  if (config.window == 0) return;
  RIVULET_CHECK(config.tensors.size() == 1 || config.tensors.size() == config.parts,
                "a convolution has one tensor, or one for each part");
  const std::vector<size_t> channels = ChannelsOf(config, projection, parameters);
  AlignedBuffer<float> weight =
      TakeConvolutionTensors(config, channels, ".weight", {1, config.window}, parameters);
  AlignedBuffer<float> bias;
  if (config.bias) bias = TakeConvolutionTensors(config, channels, ".bias", {}, parameters);
  const size_t all = weight.size() / config.window;
  convolution_ = ShortConvolution(std::move(weight), std::move(bias), all, config.window,
                                  config.silu, "conv", layout);
}

Projected PartConvolution::Apply(const LayerStep& step, const Projected& projected) const {
  if (convolution_.channels() == 0) return projected;
  const StageTimer timer(step.times, Stage::kConvolution);
  FloatMatrix x = projected[first_];  // the parts are adjacent columns
  x.columns = convolution_.channels();
  const FloatMatrix y = step.workspace->Take(x.rows, x.columns);
  convolution_.Apply(step.segments, step.state, x, y, *step.pool);
  Projected result = projected;
  size_t column = 0;
  for (size_t i = first_; i < first_ + parts_; ++i) {
    result[i] = y.Columns(column, projected[i].columns);
    column += projected[i].columns;
  }
  return result;
}

DeviceConvolution PartConvolution::OnDevice(const DeviceStep& step,
                                            const Projected& projected) const {
  if (convolution_.channels() == 0) return {};
  return convolution_.OnDevice(*step.device, projected[first_]);
}

float InverseRoot(size_t key_dim) { return 1.0f / std::sqrt(static_cast<float>(key_dim)); }

FloatMatrix PaddedHeads(const LayerStep& step, FloatMatrix x, size_t heads, Activation f,
                        float scale) {
  const size_t width = x.columns / heads, padded = PaddedColumns(width);
  if (f == Activation::kIdentity && scale == 1.0f && width == padded && Aligned(x)) return x;
  const FloatMatrix y = step.workspace->Take(x.rows, heads * padded);
  PadHeads(x, heads, width, f, scale, y, *step.pool);
  return y;
}

void Rotate(const LayerStep& step, const Rope& rope, size_t head_stride, FloatMatrix q,
            FloatMatrix k) {
  const RopeAngles angles = rope.Angles(step.segments, q.rows, *step.workspace, *step.pool);
  ApplyRope(angles, q, q.columns / head_stride, head_stride, *step.pool);
  ApplyRope(angles, k, k.columns / head_stride, head_stride, *step.pool);
}

FloatMatrix RunRecurrence(const LayerStep& step, const SumRecurrence& recurrence,
                          const TokenInputs& inputs) {
  const StageTimer timer(step.times, Stage::kRecurrence);
  const HeadShape& shape = recurrence.shape();
  const FloatMatrix o = step.workspace->Take(inputs.v.rows, shape.heads * shape.padded_value());
  recurrence.Run(step, inputs, o);
  return o;
}

FloatMatrix EnqueueRecurrence(const DeviceStep& step, const SumRecurrence& recurrence,
                              const TokenInputs& inputs) {
  const HeadShape& shape = recurrence.shape();
  const FloatMatrix o = step.workspace->Take(inputs.v.rows, shape.heads * shape.padded_value());
  recurrence.Enqueue(step, inputs, o);
  return o;
}

void ProjectOutput(const LayerStep& step, const Linear& linear, ConstFloatMatrix x, FloatMatrix y) {
  const StageTimer timer(step.times, Stage::kOutput, linear.weight_bytes());
  linear.Apply(x, y, *step.pool);
}

HeadOutputConfig FlaHeadOutput(const FlaOutput& output, size_t heads, size_t width) {
  return {.heads = heads,
          .width = width,
          .norm = output.affine ? output.norm_name : "",
          .norm_eps = output.norm_eps};
}

HeadOutput::HeadOutput(const HeadOutputConfig& config, const MixerSource& source)
    : heads_(config.heads),
      width_(config.width),
      norm_eps_(config.norm_eps),
      gate_f_(config.gate_f),
      projection_(TakeLinear(config.projection, source.hidden, config.heads * config.width, false,
                             source.parameters)) {
  if (config.norm.empty()) return;
  norm_ = source.parameters.TakeVector(config.norm + ".weight", {config.width});
}

void HeadOutput::Apply(const LayerStep& step, ConstFloatMatrix o, ConstFloatMatrix gate,
                       FloatMatrix y) const {
  const FloatMatrix normed = step.workspace->Take(o.rows, heads_ * width_);
  {
    const StageTimer timer(step.times, Stage::kNorm);
    HeadNormGate(o, heads_, width_, PaddedColumns(width_), norm_.empty() ? nullptr : norm_.data(),
                 norm_eps_, gate_f_ == Activation::kSilu ? gate : ConstFloatMatrix{}, normed,
                 *step.pool);
  }
  if (gate_f_ != Activation::kSilu && gate.data != nullptr) {
    ParallelRows(*step.pool, o.rows, normed.columns, [&](size_t t) {
      GateMultiply(gate_f_, gate.row(t), normed.row(t), normed.row(t), normed.columns);
    });
  }
  ProjectOutput(step, projection_, normed, y);
}

void HeadOutput::Enqueue(const DeviceStep& step, ConstFloatMatrix o, ConstFloatMatrix gate,
                         FloatMatrix y) const {
  const GatedNorm how{.heads = heads_,
                      .width = width_,
                      .norm_width = width_,
                      .weight = {norm_.data(), norm_.size()},
                      .eps = norm_eps_,
                      .gate_f = gate_f_};
  projection_.Enqueue(*step.device, EnqueueNormAndGate(step, o, gate, how), y);
}

Operand EnqueueNormAndGate(const DeviceStep& step, ConstFloatMatrix o, ConstFloatMatrix gate,
                           const GatedNorm& how) {
  const Operand y = step.workspace->TakeOperand(o.rows, how.heads * how.width);
  step.device->Finish({.o = o,
                       .gate = gate,
                       .heads = static_cast<uint32_t>(how.heads),
                       .width = static_cast<uint32_t>(how.width),
                       .padded = static_cast<uint32_t>(PaddedColumns(how.width)),
                       .norm_width = static_cast<uint32_t>(how.norm_width),
                       .order = how.order,
                       .gate_f = how.gate_f,
                       .weight = step.device->Constant(how.weight),
                       .weight_period = static_cast<uint32_t>(how.weight.size()),
                       .eps = how.eps,
                       .y = y});
  return y;
}

bool LeavesFactor(const DeviceStep& step, const SumRecurrence& recurrence, const GatedNorm& how) {
  return step.output_factor != nullptr && CanLeaveFactor(recurrence, how);
}
bool CanLeaveFactor(const SumRecurrence& recurrence, const GatedNorm& how) {
  const size_t columns = how.heads * how.width;
  return recurrence.GatesOnDevice() && how.order == FinishOrder::kGateThenNorm &&
         how.gate_f == Activation::kSilu && how.norm_width == columns &&
         how.weight.size() == columns;
}

Operand EnqueueGatedRecurrence(const DeviceStep& step, const SumRecurrence& recurrence,
                               const RowPreparation& rows, const TokenInputs& inputs,
                               ConstFloatMatrix gate, const GatedNorm& how,
                               const ProjectionCall* projection) {
  const size_t columns = how.heads * how.width;
  const FloatMatrix o = step.workspace->Take(gate.rows, columns);
  const FloatMatrix squares = step.workspace->Take(gate.rows, columns / GatedOutputs::kSquares);
  const auto stride = static_cast<uint32_t>(squares.stride);
  const GatedOutputs gated{.gate = gate.data,
                           .gate_stride = static_cast<uint32_t>(gate.stride),
                           .weight = step.device->Constant(how.weight),
                           .y = step.workspace->TakeOperand(gate.rows, columns),
                           .squares = squares.data,
                           .squares_stride = stride};
  recurrence.Enqueue(step, inputs, o, &gated, &rows.call(), projection);
  *step.output_factor = {.squares = squares.data,
                         .stride = stride,
                         .count = static_cast<uint32_t>(squares.columns),
                         .width = static_cast<uint32_t>(columns),
                         .eps = how.eps};
  return gated.y;
}

}  // namespace rivulet
