// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/h3/h3_constants.h"

#include <cmath>
#include <complex>

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

}  // namespace

H3Constants TakeH3Constants(const H3Config& config, ParameterSource& parameters) {
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

}  // namespace rivulet
