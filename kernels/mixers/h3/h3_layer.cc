// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <complex>
#include <memory>

#include "kernels/mixers/h3/h3_config.h"
#include "kernels/mixers/h3/h3_recurrence.h"
#include "kernels/mixers/layer_stages.h"

namespace rivulet {
namespace {

using Complex = std::complex<double>;

// The shift SSM's impulse response, with the skip in its first tap.
AlignedBuffer<float> TakeTaps(const H3Config& config, ParameterSource& parameters) {
  const size_t channels = config.channels(), n = config.state_size;
  const AlignedBuffer<float> b = parameters.TakeVector("ssm_k_kernel.kernel.B", {channels, n});
  const AlignedBuffer<float> c = parameters.TakeVector("ssm_k_kernel.kernel.C", {1, channels, n});
  const AlignedBuffer<float> skip = parameters.TakeVector("ssm_k_D", {channels});
  AlignedBuffer<float> taps(channels * n);
  for (size_t i = 0; i < channels * n; ++i) {
    const size_t channel = i / n, lag = i % n;
    double tap = lag == 0 ? skip[channel] : 0.0;
    for (size_t m = 0; m + lag < n; ++m) tap += double{b[channel * n + m]} * c[i + m];
    taps[i] = static_cast<float>(tap);
  }
  return taps;
}

// The diagonal SSM as stored: complex numbers are pairs, and A is per row of n_ssm.
struct Diagonal {
  AlignedBuffer<float> log_step;    // [Hs]
  AlignedBuffer<float> b, c;        // [n_ssm, M, 2], [1, Hs, M, 2]
  AlignedBuffer<float> real, imag;  // [n_ssm, M]: log(-Re A), Im A
};

Diagonal TakeDiagonal(const H3Config& config, ParameterSource& parameters) {
  const size_t m = config.modes();
  return {parameters.TakeVector("kernel.kernel.log_dt", {config.heads}),
          parameters.TakeVector("kernel.kernel.B", {config.ssms, m, 2}),
          parameters.TakeVector("kernel.kernel.C", {1, config.heads, m, 2}),
          parameters.TakeVector("kernel.kernel.inv_A_real", {config.ssms, m}),
          parameters.TakeVector("kernel.kernel.A_imag", {config.ssms, m})};
}

struct Mode {
  Complex pole;   // dA
  Complex input;  // dB
};

Mode Discretise(Discretisation how, Complex a, Complex b, double step) {
  if (how == Discretisation::kZeroOrderHold) {
    const Complex pole = std::exp(step * a);
    return {pole, b * (pole - 1.0) / a};
  }
  const Complex below = 1.0 - step * a / 2.0;
  return {(1.0 + step * a / 2.0) / below, b * step / below};
}

void SetMode(const H3Config& config, const Diagonal& diagonal, size_t head, size_t n,
             H3Constants& constants) {
  const size_t m = config.modes(), row = head % config.ssms * m + n, own = head * m + n;
  const Complex a(-std::exp(double{diagonal.real[row]}), diagonal.imag[row]);
  const Complex b(diagonal.b[2 * row], diagonal.b[2 * row + 1]);
  const Complex c(diagonal.c[2 * own], diagonal.c[2 * own + 1]);
  const double step = std::exp(double{diagonal.log_step[head]});
  const Mode mode = Discretise(config.discretisation, a, b, step);
  const Complex weight = 2.0 * c * mode.input;
  constants.pole_real[own] = static_cast<float>(mode.pole.real());
  constants.pole_imaginary[own] = static_cast<float>(mode.pole.imag());
  constants.weight_real[own] = static_cast<float>(weight.real());
  constants.weight_imaginary[own] = static_cast<float>(weight.imag());
}

// The trained SSMs as what the recurrence multiplies by, computed in fp64 and rounded once. Tensors
// that fail are recorded by `parameters` and read as zeros.
H3Constants TakeConstants(const H3Config& config, ParameterSource& parameters) {
  const size_t count = config.heads * config.modes();
  H3Constants constants{TakeTaps(config, parameters), AlignedBuffer<float>(count),
                        AlignedBuffer<float>(count),  AlignedBuffer<float>(count),
                        AlignedBuffer<float>(count),  parameters.TakeVector("D", {config.heads})};
  const Diagonal diagonal = TakeDiagonal(config, parameters);
  for (size_t head = 0; head < config.heads; ++head) {
    for (size_t n = 0; n < config.modes(); ++n) SetMode(config, diagonal, head, n, constants);
  }
  return constants;
}

// The columns of the one projection of x.
enum Part : size_t { kQuery, kKey, kValue };

class H3Layer : public Mixer {
 public:
  H3Layer(const H3Config& config, const MixerOptions& options, ParameterSource& parameters)
      : layout_(options.NewLayout()),
        config_(config),
        projection_({{"q_proj", config.channels(), true},
                     {"k_proj", config.channels(), true},
                     {"v_proj", config.channels(), true}},
                    config.channels(), parameters),
        recurrence_({config.heads, config.head_dim, config.state_size, config.modes()},
                    TakeConstants(config, parameters), layout_),
        output_(
            TakeLinear("output_linear", config.channels(), config.channels(), true, parameters)) {}

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Projected projected = projection_.Apply(step, x);
    const H3Input input{Split(step, projected[kQuery]), Split(step, projected[kKey]),
                        Split(step, projected[kValue])};
    const FloatMatrix o = step.workspace->Take(x.rows, recurrence_.shape().columns());
    {
      const StageTimer timer(step.times, Stage::kRecurrence);
      recurrence_.Run(step.segments, step.state, input, o, *step.pool);
    }
    ProjectOutput(step, output_, Join(step, o), y);
    return absl::OkStatus();
  }

  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override {
    const Projected projected = projection_.Enqueue(step, x);
    const Operand o = step.workspace->TakeOperand(x.rows, config_.channels());
    recurrence_.Enqueue(step, {projected[kQuery], projected[kKey], projected[kValue]}, o);
    output_.Enqueue(*step.device, o, y);
  }
  bool runs_on_device() const override { return recurrence_.RunsOnDevice(); }

 private:
  // Channel h·hd + i to column i·Hp + h.
  ConstFloatMatrix Split(const LayerStep& step, ConstFloatMatrix x) const {
    const size_t hd = config_.head_dim, heads = config_.heads;
    const size_t padded = recurrence_.shape().padded_heads();
    if (hd == 1 && heads == padded) return x;
    return MapRows(step, x, hd * padded, [&](const float* from, float* to) {
      for (size_t i = 0; i < hd; ++i, to += padded) {
        for (size_t h = 0; h < heads; ++h) to[h] = from[h * hd + i];
        std::fill(to + heads, to + padded, 0.0f);
      }
    });
  }

  // Column j·Hp + h to output channel j·Hs + h: "(d h)", unlike the inputs.
  ConstFloatMatrix Join(const LayerStep& step, FloatMatrix o) const {
    const size_t heads = config_.heads, padded = recurrence_.shape().padded_heads();
    if (heads == padded) return o;
    return MapRows(step, o, config_.channels(), [&](const float* from, float* to) {
      for (size_t j = 0; j < config_.head_dim; ++j) {
        std::copy_n(from + j * padded, heads, to + j * heads);
      }
    });
  }

  StateLayout layout_;
  H3Config config_;
  Projection projection_;
  H3Recurrence recurrence_;
  Linear output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const H3Config& config,
                                                 const MixerSource& source) {
  return std::make_unique<H3Layer>(config, source.options, source.parameters);
}

}  // namespace rivulet
