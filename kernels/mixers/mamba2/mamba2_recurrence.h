// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Mamba-2's state space duality (Dao and Gu 2024; docs/mixers.md#mamba-2) as one sum a head with a
// scalar decay, queries C_t, keys B_t, values Δ_t x_t, and no 1/√N:
//
//   S_t = e^{A Δ_t} S_{t-1} + B_tᵀ (Δ_t x_t)        y_t = C_t S_t + D ∘ x_t
//
// Letters: H heads, G groups, N state size (the key width), P head width (the value width). Heads
// of a group share B and C, which are kept once. TokenInputs: q is C, k is B, v is x [T, H*P]
// without padding between heads, decay is Δ >= 0.
#ifndef RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_RECURRENCE_H_

#include <vector>

#include "kernels/recurrence/declaration.h"

namespace rivulet {

// The trained constants of the recurrence.
struct Mamba2Constants {
  std::vector<float> a;  // [H], -exp(A_log) < 0
  std::vector<float> d;  // [H*P], the skip
};

// `shape` has N as its key width and P as its value width.
RecurrenceDeclaration Mamba2Declaration(const HeadShape& shape, const Mamba2Constants& constants);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_RECURRENCE_H_
