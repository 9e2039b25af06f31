// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// AHLA as two decayed sums, the second over what the first was just read as (docs/mixers.md#ahla):
//
//   R = LA(Q, K, V; P, γ)        rows r_t = q_t P_t, P_t inclusive of token t
//   o = LA(Q, K, R; E, γ)
//
// Normalisers m, n are one more value column of P, E: the extra value of r_t is q_t · m_t.
//
// Sums are kept once a query head: r depends on q, and with decay so does P on the head's γ.
// Without decay P is the same for all query heads of a kv head and is kept once.
#ifndef RIVULET_KERNELS_MIXERS_AHLA_AHLA_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_AHLA_AHLA_RECURRENCE_H_

#include "kernels/mixers/hla/higher_order/higher_order.h"

namespace rivulet {

class AhlaRecurrence : public HigherOrderRecurrence {
 public:
  // Adds its planes to `layout`. REQUIRES: decay without a table or with shape.heads heads.
  AhlaRecurrence(const HigherOrderShape& shape, DecayTable decay, StateLayout& layout);

  void Run(const MixerStep& step, const HigherOrderInput& input, FloatMatrix out) const override;

 private:
  // Index into P's planes of a query head's sum.
  size_t SumHead(size_t head) const { return shared_p_ ? head / shape_.group() : head; }

  void RunPiece(const PieceView& view, const HigherOrderInput& input, FloatMatrix out) const;
  void Read(const PieceView& view, ConstFloatMatrix q, size_t head, FloatMatrix out) const;
  void Fold(const PieceView& view, size_t head) const;
  SumTail TailP(const PieceView& view, size_t head) const;
  SumTail TailE(const PieceView& view, size_t head) const;

  HigherOrderShape shape_;
  DecayTable decay_;
  bool shared_p_;
  SumPlanes p_, e_;
  RowPlanes k_, v_, r_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_AHLA_AHLA_RECURRENCE_H_
