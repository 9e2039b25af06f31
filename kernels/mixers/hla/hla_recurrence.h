// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The higher-order recurrences (docs/mixers.md#hla, #ahla, #third-order) as reads of decayed sums,
// one after the other. With LA(queries, keys, values; sum, decay) the primitive of
// kernels/recurrence, [a | b] columns side by side, and ⁻ for a strict read, as of before the
// token:
//
//   HLA      U = LA(Q, K, K; S, γ)                                  rows u_t = q_t S_t
//     masked   o = LA(Q, U, V; F, γ²) + λ LA(Q, Q, V; C, γ)
//     serial   o = LA(U + λQ, Q, V; C, γ) - LA(Q, K, Y; G, γ)       Y = LA⁻(K, Q, V; C, γ)
//     none     o = LA(U + λQ, Q, V; C, γ)
//
//   AHLA     R = LA(Q, K, V; P, γ)        o = LA(Q, K, R; E, γ)
//
//   third order, masked
//            [U | R] = LA(Q, K, [K | V]; [S | P], γ)        o = LA(Q, U, R; F, γ³)
//
//   third order, paper: what Algorithm 3 of the HLA paper computes, which is not its Theorem 7.1
//            Y  = LA(Q, K, K; S)       Z = LA(Y, Q, Q; SQ)      numerator = LA(Z, K, V; P)
//            U  = LA⁻(K, Q, Q; SQ)
//            W1 = LA⁻(U, K, V; P)      A2 = LA⁻(Q, K, K; S)
//            W2 = LA⁻(Q, K, V; P)      A3 = LA⁻(U, K, K; S)
//            o  = numerator - LA(Q, K, W1; G1) - LA(Q, A2, W2; G2) - LA(Q, A3, V; G3)
//
// Normalisers are one more value column of C, F, G, of P and E, and of G1, G2 and G3.
//
// A sum over k and v alone is kept once a kv head without decay. With decay each query head has its
// own γ, and so its own sums. The paper adds G1, G2 and G3 up; here they are three matrices, since
// a fold takes one key and one value a token: that form is for weights that were trained with it,
// not for speed.
#ifndef RIVULET_KERNELS_MIXERS_HLA_HLA_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_HLA_HLA_RECURRENCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/dtype.h"
#include "kernels/recurrence/declaration.h"

namespace rivulet {

enum class HlaForm : uint8_t {
  kMasked,  // the exact mask of the decayed moments; third order: docs/mixers.md#third-order-causal
  kSerial,  // the paper's Algorithm 1; second order only
  kUnmasked,  // "none": the prefix product S_t C_t; second order only
  kPaper,     // the paper's Algorithm 3 (docs/mixers.md#third-order-paper); third order only
};

// Sizes and choices of one layer's heads.
struct HigherOrderShape {
  size_t heads = 0;      // H
  size_t kv_heads = 0;   // Hkv, divides H
  size_t key_dim = 0;    // D
  size_t value_dim = 0;  // E
  bool normalize = false;
  float denom_eps = 1e-6f;
  DType state_dtype = DType::kFloat32;

  size_t padded_key() const { return PaddedColumns(key_dim); }
  size_t padded_value() const { return PaddedColumns(value_dim); }
};

// log γ [H] of logits [H]: γ_h = σ(logits[h]) (docs/mixers.md#hla-format). log γ comes straight
// from logsigmoid and never from γ: rounding γ = 0.999 to fp32 alone costs 1e-5 at 4096 tokens
// (docs/mixers.md#precision).
std::vector<double> LogDecays(const AlignedBuffer<float>& logits);

// `log_gamma` [H], or empty: γ = 1.
RecurrenceDeclaration HlaDeclaration(const HigherOrderShape& shape, HlaForm form,
                                     float ridge_lambda, const std::vector<double>& log_gamma);
RecurrenceDeclaration AhlaDeclaration(const HigherOrderShape& shape,
                                      const std::vector<double>& log_gamma);
RecurrenceDeclaration ThirdOrderDeclaration(const HigherOrderShape& shape,
                                            const std::vector<double>& log_gamma);
RecurrenceDeclaration PaperThirdOrderDeclaration(const HigherOrderShape& shape,
                                                 const std::vector<double>& log_gamma);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_HLA_HLA_RECURRENCE_H_
