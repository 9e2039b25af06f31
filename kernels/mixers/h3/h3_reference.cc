// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/h3/h3_reference.h"

#include <complex>

namespace rivulet {
namespace {

// One row of a head: its column and its channel.
struct Row {
  size_t column;   // i·Hp + h of q, k, v and o
  size_t channel;  // h·hd + i of the taps
};

Row RowOf(const H3Shape& shape, size_t head, size_t i) {
  return {i * shape.padded_heads() + head, head * shape.head_dim + i};
}

// k̄ of every token.
std::vector<double> Shift(const H3Shape& shape, const H3Constants& constants, const H3Input& input,
                          const Row& row) {
  const float* taps = constants.taps.data() + row.channel * shape.window;
  std::vector<double> shifted(input.k.rows, 0.0);
  for (size_t t = 0; t < shifted.size(); ++t) {
    for (size_t l = 0; l < shape.window && l <= t; ++l) {
      shifted[t] += double{taps[l]} * double{input.k.row(t - l)[row.column]};
    }
  }
  return shifted;
}

// K[l] = Re Σ_n weight_n pole_n^l, and D added to K[0].
std::vector<double> Kernel(const H3Shape& shape, const H3Constants& constants, size_t head,
                           size_t tokens) {
  std::vector<double> kernel(tokens, 0.0);
  kernel[0] = constants.skip[head];
  for (size_t n = head * shape.modes; n < (head + 1) * shape.modes; ++n) {
    const std::complex<double> pole(constants.pole_real[n], constants.pole_imaginary[n]);
    const std::complex<double> weight(constants.weight_real[n], constants.weight_imaginary[n]);
    for (size_t l = 0; l < tokens; ++l) {
      kernel[l] += (weight * std::pow(pole, static_cast<double>(l))).real();
    }
  }
  return kernel;
}

// o of one (i, j): q_i ∘ (K * (k̄_i ∘ v_j)), added.
void AddPair(const H3Input& input, const std::vector<double>& shifted,
             const std::vector<double>& kernel, size_t q, size_t v, size_t columns,
             std::vector<double>& o) {
  for (size_t t = 0; t < shifted.size(); ++t) {
    double read = 0;
    for (size_t s = 0; s <= t; ++s) read += kernel[t - s] * shifted[s] * double{input.v.row(s)[v]};
    o[t * columns + v] += read * double{input.q.row(t)[q]};
  }
}

}  // namespace

std::vector<double> H3Reference(const H3Shape& shape, const H3Constants& constants,
                                const H3Input& input) {
  std::vector<double> o(input.k.rows * shape.columns(), 0.0);
  for (size_t head = 0; head < shape.heads; ++head) {
    const std::vector<double> kernel = Kernel(shape, constants, head, input.k.rows);
    for (size_t i = 0; i < shape.head_dim; ++i) {
      const std::vector<double> shifted = Shift(shape, constants, input, RowOf(shape, head, i));
      for (size_t j = 0; j < shape.head_dim; ++j) {
        AddPair(input, shifted, kernel, RowOf(shape, head, i).column, RowOf(shape, head, j).column,
                shape.columns(), o);
      }
    }
  }
  return o;
}

}  // namespace rivulet
