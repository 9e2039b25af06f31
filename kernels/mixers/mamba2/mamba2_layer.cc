// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layer around the recurrence:
//
//   z, x, B, C, dt, l = in_proj(u);   x, B, C through the short convolution
//   Δ = clamp(softplus(dt + dt_bias));   λ = softplus(L ∘ l)
//   o = recurrence(C, B, x, Δ, λ)
//   y = out_proj(norm(o · silu(z)))     or norm(o) · silu(z), or without a norm
//
// l and λ are the log-linear form's.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/parallel.h"
#include "kernels/base/row_arithmetic.h"
#include "kernels/base/status.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/device_step.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/log_linear/level_weights.h"
#include "kernels/mixers/mamba2/mamba2_config.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

// The columns of in_proj.
enum Part : size_t { kGate, kValue, kWrite, kRead, kDelta, kLevels };

std::vector<ProjectionPart> Parts(const Mamba2Config& c, size_t levels) {
  const size_t state = c.groups * c.state_size;
  std::vector<ProjectionPart> parts;
  for (const size_t columns : {c.inner(), c.inner(), state, state, c.heads, c.heads * levels}) {
    parts.push_back({"in_proj", columns, c.use_bias});
  }
  return parts;
}

PartConvolutionConfig Convolution(const Mamba2Config& config) {
  return {.tensors = {"conv1d"},
          .first = kValue,
          .parts = 3,
          .window = config.conv_kernel,
          .bias = config.use_conv_bias};
}

// A_log and D.
Mamba2Constants TakeConstants(const Mamba2Config& config, ParameterSource& parameters) {
  Mamba2Constants constants;
  const AlignedBuffer<float> logs = parameters.TakeVector("A_log", {config.heads});
  for (size_t h = 0; h < config.heads; ++h) constants.a.push_back(-std::exp(logs[h]));
  const size_t repeats = config.skip_by_channel ? 1 : config.head_dim;
  const AlignedBuffer<float> skip = parameters.TakeVector("D", {config.inner() / repeats});
  for (size_t i = 0; i < config.inner(); ++i) constants.d.push_back(skip[i / repeats]);
  return constants;
}

class Mamba2Layer : public Mixer {
 public:
  Mamba2Layer(const Mamba2Config& config, uint32_t levels, const MixerSource& source)
      : config_(config),
        layout_(source.options.NewLayout()),
        max_tokens_(LevelMaxTokens(levels, source.options.level_overflow)),
        projection_(Parts(config, levels), source.hidden, source.parameters),
        delta_bias_(source.parameters.TakeVector("dt_bias", {config.heads})),
        convolution_(Convolution(config), projection_, source.parameters, layout_),
        level_weights_(config.heads, levels, source.parameters),
        recurrence_(Mamba2Declaration({config.heads, config.groups, config.state_size,
                                       config.head_dim, source.options.state_dtype},
                                      TakeConstants(config, source.parameters), levels),
                    layout_),
        output_(TakeLinear("out_proj", source.hidden, config.inner(), config.output_bias,
                           source.parameters)) {
    if (config.use_norm) norm_ = source.parameters.TakeVector("norm.weight", {config.inner()});
  }

  const StateLayout& state_layout() const override { return layout_; }
  uint64_t max_tokens() const override { return max_tokens_; }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Projected projected =
        convolution_.Apply(step, Multiplied(step, projection_.Apply(step, x)));
    const TokenInputs inputs{.q = PaddedHeads(step, projected[kRead], config_.groups),
                             .k = PaddedHeads(step, projected[kWrite], config_.groups),
                             .v = projected[kValue],
                             .decay = Delta(step, projected[kDelta]),
                             .levels = level_weights_.Apply(step, projected[kLevels])};
    const FloatMatrix heads = RunRecurrence(step, recurrence_, inputs);
    ProjectOutput(step, output_, NormAndGate(step, heads, projected[kGate]), y);
    return absl::OkStatus();
  }

  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override {
    // A product with a factor is left to the operation that reads its columns.
    const bool late = step.input_factor.given();
    ProjectionCall projection;
    if (late) projection = projection_.CallOf(step, x);
    const Projected projected = late ? projection_.Parts(projection.y) : ProjectOnDevice(step, x);
    RowPreparation rows(step, convolution_.OnDevice(step, projected));
    const TokenInputs inputs{
        .q = rows.Heads(projected[kRead], config_.groups),
        .k = rows.Heads(projected[kWrite], config_.groups),
        .v = rows.Numbers(projected[kValue]),
        .decay =
            rows.Numbers(projected[kDelta],
                         {.f = Activation::kSoftplus,
                          .bias = step.device->Constant({delta_bias_.data(), delta_bias_.size()}),
                          .low = config_.delta_low,
                          .high = config_.delta_high}),
        .levels = level_weights_.OnDevice(step, rows, projected[kLevels])};
    const Operand normed =
        EnqueueNormedHeads(step, rows, inputs, projected[kGate], late ? &projection : nullptr);
    if (step.sum == nullptr) return output_.Enqueue(*step.device, normed, y);
    EnqueueSum(step, normed, y);
  }
  bool runs_on_device() const override {
    return SumRecurrence::RunsOnDevice(recurrence_.declaration());
  }
  // Factors pass through maps without biases only, and what reads the columns of the first one has
  // to know of them.
  bool takes_factor() const override {
    const bool plain = !config_.use_bias && !config_.output_bias && !multiplies();
    return plain && !config_.log_linear && CanLeaveFactor(recurrence_, NormOnDevice()) &&
           config_.inner() % (4 * GatedOutputs::kSquares) == 0;
  }

 private:
  bool multiplies() const {
    return std::ranges::any_of(config_.multipliers, [](float factor) { return factor != 1; });
  }

  // In place: each part times its multiplier.
  Projected Multiplied(const LayerStep& step, const Projected& projected) const {
    if (!multiplies()) return projected;
    for (const Part part : {kGate, kValue, kWrite, kRead, kDelta}) {
      ScaleRows(config_.multipliers[part], projected[part], *step.pool);
    }
    return projected;
  }

  Projected ProjectOnDevice(const DeviceStep& step, const Operand& x) const {
    return MultipliedOnDevice(step, projection_.Enqueue(step, x));
  }
  // The layer's last map, whose output is added to step.sum. `y`: memory for a temporary.
  void EnqueueSum(const DeviceStep& step, const Operand& normed, FloatMatrix y) const {
    ResidualSum& sum = *step.sum;
    const bool of_squares = step.device->AddProduct({.linear = output_.on_device(),
                                                     .input = normed,
                                                     .factor = *step.output_factor,
                                                     .update = y,
                                                     .x = sum.x,
                                                     .norm = sum.norm});
    sum.left = sum.norm.Factor(sum.x.columns, of_squares);
  }

  Projected MultipliedOnDevice(const DeviceStep& step, const Projected& projected) const {
    for (const Part part : {kGate, kValue, kWrite, kRead, kDelta}) {
      const FloatMatrix x = projected[part];
      const float factor = config_.multipliers[part];
      for (size_t first = 0; factor != 1 && first < x.columns; first += kMostNormedWidth) {
        const size_t count = std::min<size_t>(x.columns - first, kMostNormedWidth);
        step.device->AddNorm({.x = x.Columns(first, count), .keep = factor});
      }
    }
    return projected;
  }

  // Δ [T, H] = clamp(softplus(dt + dt_bias), time_step_limit).
  FloatMatrix Delta(const LayerStep& step, ConstFloatMatrix dt) const {
    const size_t heads = config_.heads;
    return MapRows(step, dt, heads, [&](const float* logits, float* delta) {
      for (size_t h = 0; h < heads; ++h) delta[h] = logits[h] + delta_bias_[h];
      Activate(Activation::kSoftplus, delta, delta, heads);
      for (size_t h = 0; h < heads; ++h) {
        delta[h] = std::clamp(delta[h], config_.delta_low, config_.delta_high);
      }
    });
  }

  // [T, I] from the recurrence's heads [T, H*Pp] and the gate z [T, I].
  FloatMatrix NormAndGate(const LayerStep& step, ConstFloatMatrix heads, ConstFloatMatrix z) const {
    const StageTimer timer(step.times, Stage::kNorm);
    const ConstFloatMatrix o = Unpad(step, heads);
    const FloatMatrix y = step.workspace->Take(o.rows, o.columns);
    const size_t groups = config_.norm_groups;
    if (!config_.use_norm) {
      ParallelRows(*step.pool, o.rows, o.columns, [&](size_t t) {
        GateMultiply(Activation::kSilu, z.row(t), o.row(t), y.row(t), o.columns);
      });
    } else if (!config_.norm_before_gate) {
      GateThenNorm(o, z, groups, norm_.data(), config_.norm_eps, y, *step.pool);
    } else {
      const size_t width = o.columns / groups;
      for (size_t first = 0; first < o.columns; first += width) {
        HeadNormGate(o.Columns(first, width), 1, width, width, norm_.data() + first,
                     config_.norm_eps, z.Columns(first, width), y.Columns(first, width),
                     *step.pool);
      }
    }
    return y;
  }

  // The input of out_proj. `rows` make the recurrence's inputs, and `projection` their numbers;
  // null: these are there.
  Operand EnqueueNormedHeads(const DeviceStep& step, RowPreparation& rows,
                             const TokenInputs& inputs, ConstFloatMatrix z,
                             const ProjectionCall* projection) const {
    const GatedNorm norm = NormOnDevice();
    if (!config_.output_bias && LeavesFactor(step, recurrence_, norm)) {
      return EnqueueGatedRecurrence(step, recurrence_, rows, inputs, z, norm, projection);
    }
    RIVULET_CHECK(projection == nullptr, "a factor without one of the outputs");
    rows.Enqueue();
    return EnqueueNormAndGate(step, EnqueueRecurrence(step, recurrence_, inputs), z, norm);
  }

  GatedNorm NormOnDevice() const {
    FinishOrder order =
        config_.norm_before_gate ? FinishOrder::kNormThenGate : FinishOrder::kGateThenNorm;
    if (!config_.use_norm) order = FinishOrder::kGateOnly;
    return {.heads = config_.heads,
            .width = config_.head_dim,
            .norm_width = config_.inner() / config_.norm_groups,
            .weight = {norm_.data(), norm_.size()},
            .eps = config_.norm_eps,
            .order = order};
  }

  // [T, H*Pp] → [T, I]: the heads side by side, as the norm and out_proj want them.
  ConstFloatMatrix Unpad(const LayerStep& step, ConstFloatMatrix heads) const {
    const size_t p = config_.head_dim, padded = PaddedColumns(p);
    if (p == padded) return heads;
    return MapRows(step, heads, config_.inner(), [&](const float* from, float* to) {
      for (size_t h = 0; h < config_.heads; ++h) std::copy_n(from + h * padded, p, to + h * p);
    });
  }

  Mamba2Config config_;
  StateLayout layout_;
  uint64_t max_tokens_;
  Projection projection_;
  AlignedBuffer<float> delta_bias_;  // [H]
  PartConvolution convolution_;
  LevelWeights level_weights_;  // of the log-linear form
  SumRecurrence recurrence_;
  AlignedBuffer<float> norm_;  // [I], empty without norm
  Linear output_;
};

}  // namespace

RecurrenceDeclaration Mamba2Declaration(const HeadShape& shape, const Mamba2Constants& constants,
                                        uint32_t levels) {
  return {.shape = shape,
          .sharing = Sharing::kQueriesAndKeys,
          .decay = {.kind = Decay::kScalar, .rate = constants.a},
          .rows = {{"B", shape.key_dim, {"k"}},
                   {.name = "v", .width = shape.value_dim, .copies = {"v"}, .times_step = true}},
          .sums = {{"S", "B", "v"}},
          .reads = {{"o", "S", "q"}},
          .levels = levels,
          .skip = constants.d};
}

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const Mamba2Config& config,
                                                 const MixerSource& source) {
  uint32_t levels = 0;
  if (config.log_linear) {
    const size_t other_rows =
        2 * config.inner() + 2 * config.groups * config.state_size + config.heads;
    RIVULET_ASSIGN_OR_RETURN(
        levels, FindLevels(config.max_levels, {"in_proj.weight", other_rows, config.heads},
                           source.parameters));
  }
  return std::make_unique<Mamba2Layer>(config, levels, source);
}

}  // namespace rivulet
