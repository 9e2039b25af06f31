// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mamba/mamba_reference.h"

#include <cmath>

namespace rivulet {
namespace {

double Softplus(double x) { return std::log1p(std::exp(-std::abs(x))) + (x > 0 ? x : 0.0); }

// Σ_{s<=t} Σ_n C_t[n] e^{A_n (Δ_{s+1} + ... + Δ_t)} B_s[n] Δ_s x_s, one channel and token.
double Scan(const MambaShape& shape, const float* a, const MambaInput& input, size_t channel,
            size_t t) {
  double y = 0, elapsed = 0;
  for (size_t s = t + 1; s-- > 0;) {
    double weight = 0;
    for (size_t n = 0; n < shape.state_size; ++n) {
      weight += double{input.c.row(t)[n]} * std::exp(a[n] * elapsed) * double{input.b.row(s)[n]};
    }
    const double delta = Softplus(input.dt.row(s)[channel]);
    y += weight * delta * double{input.x.row(s)[channel]};
    elapsed += delta;
  }
  return y;
}

}  // namespace

std::vector<double> MambaReference(const MambaShape& shape, const MambaConstants& constants,
                                   const MambaInput& input) {
  std::vector<double> y;
  for (size_t t = 0; t < input.x.rows; ++t) {
    for (size_t channel = 0; channel < shape.channels; ++channel) {
      const float* a = constants.a.data() + channel * shape.state_size;
      const double x = input.x.row(t)[channel], z = input.z.row(t)[channel];
      const double scanned = Scan(shape, a, input, channel, t);
      y.push_back((scanned + double{constants.d[channel]} * x) * z / (1 + std::exp(-z)));
    }
  }
  return y;
}

}  // namespace rivulet
