// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/rg_lru/rg_lru_reference.h"

#include <cmath>

namespace rivulet {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One channel: log a summed from position 0 on, and what each token writes.
struct Channel {
  Channel(double rate, const RgLruInput& input, size_t c) {
    double sum = 0;
    for (size_t t = 0; t < input.x.rows; ++t) {
      const double log_a = rate * Sigmoid(input.recurrent_gate.row(t)[c]);
      const double factor = t == 0 ? 1.0 : std::sqrt(-std::expm1(2 * log_a));
      elapsed.push_back(sum += log_a);
      write.push_back(factor * Sigmoid(input.input_gate.row(t)[c]) * input.x.row(t)[c]);
    }
  }
  double At(size_t t) const {
    double h = 0;
    for (size_t s = 0; s <= t; ++s) h += std::exp(elapsed[t] - elapsed[s]) * write[s];
    return h;
  }
  std::vector<double> elapsed, write;
};

}  // namespace

std::vector<double> RgLruReference(const AlignedBuffer<float>& rate, const RgLruInput& input) {
  std::vector<double> h(input.x.rows * input.x.columns);
  for (size_t c = 0; c < input.x.columns; ++c) {
    const Channel channel(rate[c], input, c);
    for (size_t t = 0; t < input.x.rows; ++t) h[t * input.x.columns + c] = channel.At(t);
  }
  return h;
}

}  // namespace rivulet
