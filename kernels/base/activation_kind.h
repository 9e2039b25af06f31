// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The elementwise functions that layers name, on every device.
#ifndef RIVULET_KERNELS_BASE_ACTIVATION_KIND_H_
#define RIVULET_KERNELS_BASE_ACTIVATION_KIND_H_

#include <cstdint>

namespace rivulet {

enum class Activation : uint8_t {
  kIdentity,
  kSilu,  // x σ(x)
  kSigmoid,
  kRelu,
  kEluPlusOne,  // x > 0 ? x + 1 : e^x (Katharopoulos; docs/mixers.md#linear-attention)
  kExp,
  kSoftplus,     // log(1 + e^x), x itself for x > 20 (docs/mixers.md#norms)
  kLogSigmoid,   // -softplus(-x), stable on both sides
  kGeluTanh,     // x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))): GPT-2's and H3's gelu
  kGelu,         // x Φ(x) = x/2 (1 + erf(x/√2)): Zamba2's
  kReluSquared,  // max(x, 0)²: Nemotron's
  kTanh,
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_ACTIVATION_KIND_H_
