// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What Algorithm 3 of the HLA paper computes (docs/mixers.md#third-order-paper; hla_form "paper"),
// which is not its Theorem 7.1. Strict reads, as of before the token, are marked ⁻:
//
//   Y  = LA(Q, K, K; S)      Z = LA(Y, Q, Q; S^Q)     numerator = LA(Z, K, V; P)
//   U  = LA⁻(K, Q, Q; S^Q)
//   W1 = LA⁻(U, K, V; P)     A2 = LA⁻(Q, K, K; S)     W2 = LA⁻(Q, K, V; P)     A3 = LA⁻(U, K, K; S)
//   o  = numerator - LA(Q, K, W1; G1) - LA(Q, A2, W2; G2) - LA(Q, A3, V; G3)
//
// every sum with the same decay γ, which is why the paper can add G1, G2 and G3 up. Here they are
// three matrices, since a fold takes one key and one value a token: this form is for weights that
// somebody trained with it, not for speed.
//
// S and P are kept once a kv head without decay; with decay each query head has its own γ.
#ifndef RIVULET_KERNELS_MIXERS_HLA_THIRD_ORDER_PAPER_THIRD_ORDER_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_HLA_THIRD_ORDER_PAPER_THIRD_ORDER_RECURRENCE_H_

#include "kernels/mixers/hla/higher_order/higher_order.h"

namespace rivulet {

class PaperThirdOrderRecurrence : public HigherOrderRecurrence {
 public:
  // Adds its planes to `layout`. REQUIRES: decay without a table or with shape.heads heads.
  PaperThirdOrderRecurrence(const HigherOrderShape& shape, DecayTable decay, StateLayout& layout);

  void Run(const MixerStep& step, const HigherOrderInput& input, FloatMatrix out) const override;

 private:
  // Temporaries of a step, [T, H * Dp] and [T, H * Ep].
  struct Scratch {
    FloatMatrix u, y, z, less;
  };
  // One of G1, G2, G3, with the rows it sums.
  struct Correction {
    const SumPlanes* sum;
    SumTail tail;
  };

  // Index into the planes of S and P of a query head's sum.
  size_t SumHead(size_t head) const { return shared_ ? head / shape_.group() : head; }

  void AddSums(StateLayout& layout);
  void AddRows(StateLayout& layout);
  void RunPiece(const PieceView& view, const HigherOrderInput& input, const Scratch& scratch,
                FloatMatrix out) const;
  void ReadCorrectionRows(const PieceView& view, const HigherOrderInput& input, FloatMatrix u,
                          size_t head) const;
  void ReadNumerator(const PieceView& view, const HigherOrderInput& input, const Scratch& scratch,
                     size_t head, FloatMatrix out, float* extra) const;
  void SubtractCorrections(const PieceView& view, const HigherOrderInput& input, FloatMatrix less,
                           size_t head, FloatMatrix out, float* extra) const;
  void Fold(const PieceView& view, size_t head) const;

  SumTail TailS(const PieceView& view, size_t head) const;
  SumTail TailQ(const PieceView& view, size_t head) const;
  SumTail TailP(const PieceView& view, size_t head) const;
  Correction CorrectionOf(const PieceView& view, size_t head, size_t index) const;

  HigherOrderShape shape_;
  DecayTable decay_;
  bool shared_;
  SumPlanes s_, sq_, p_, g_[3];
  RowPlanes k_, v_, q_, a2_, a3_, w1_, w2_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_HLA_THIRD_ORDER_PAPER_THIRD_ORDER_RECURRENCE_H_
