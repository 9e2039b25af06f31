// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// HLA second order as reads and folds of decayed sums (docs/mixers.md#hla-order-of-updates,
// #hla-chunkwise). In the letters of the paper, with LA(queries, keys, values; sum, decay) the
// primitive of kernels/recurrence:
//
//   U = LA(Q, K, K; S, γ)                                  rows u_t = q_t S_t
//   masked   o = LA(Q, U, V; F, γ²) + λ LA(Q, Q, V; C, γ)
//   serial   o = LA(U + λQ, Q, V; C, γ) - LA(Q, K, Y; G, γ),   y_t = k_t C_{t-1}
//   none     o = LA(U + λQ, Q, V; C, γ)
//
// Normalisers m, h, η are one more value column of C, G, F.
//
// S is kept once a kv head without decay; with decay each query head has its own γ, and so its own
// S.
#ifndef RIVULET_KERNELS_MIXERS_HLA_HLA_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_HLA_HLA_RECURRENCE_H_

#include "kernels/mixers/hla/higher_order/higher_order.h"
#include "kernels/mixers/hla/hla_config.h"

namespace rivulet {

class HlaRecurrence : public HigherOrderRecurrence {
 public:
  // Adds its planes to `layout`. REQUIRES: decay without a table or with shape.heads heads.
  HlaRecurrence(const HigherOrderShape& shape, HlaForm form, float ridge_lambda, DecayTable decay,
                StateLayout& layout);

  void Run(const MixerStep& step, const HigherOrderInput& input, FloatMatrix out) const override;

 private:
  // Temporaries of a step, [T, H * Dp] and [T, H * Ep]; empty where the form needs none.
  struct Scratch {
    FloatMatrix u, numerator;
  };

  bool KeepsC() const { return form_ != HlaForm::kMasked || ridge_lambda_ != 0.0f; }
  // Index into S's planes of a query head's sum.
  size_t SumHead(size_t head) const { return shared_s_ ? head / shape_.group() : head; }

  void AddSums(StateLayout& layout);
  void AddRows(StateLayout& layout);
  void RunPiece(const PieceView& view, const HigherOrderInput& input, const Scratch& scratch,
                FloatMatrix out) const;
  void ReadMasked(const PieceView& view, const HigherOrderInput& input, const Scratch& scratch,
                  size_t head, FloatMatrix out, float* extra) const;
  void ReadProduct(const PieceView& view, const HigherOrderInput& input, const Scratch& scratch,
                   size_t head, FloatMatrix out, float* extra) const;
  void SubtractG(const PieceView& view, const HigherOrderInput& input, const Scratch& scratch,
                 size_t head, FloatMatrix out, float* extra) const;
  void Fold(const PieceView& view, size_t head) const;

  // The tails that each sum reads: keys and values named in the formulas above.
  SumTail TailS(const PieceView& view, size_t head) const;
  SumTail TailF(const PieceView& view, size_t head) const;
  SumTail TailC(const PieceView& view, size_t head) const;
  SumTail TailG(const PieceView& view, size_t head) const;

  HigherOrderShape shape_;
  HlaForm form_;
  float ridge_lambda_;
  DecayTable decay_;
  bool shared_s_;
  SumPlanes s_, c_, f_, g_;
  RowPlanes k_, v_, q_, u_, y_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_HLA_HLA_RECURRENCE_H_
