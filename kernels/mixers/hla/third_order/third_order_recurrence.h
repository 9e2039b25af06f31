// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// HLA third order, masked (docs/mixers.md#third-order-causal), as two decayed sums, the second over
// what the first was just read as. [a | b] is concatenation of columns:
//
//   [U | R] = LA(Q, K, [K | V]; [S | P], γ)      rows u_t = q_t S_t, r_t = q_t P_t
//   o       = LA(Q, U, R; F, γ³)
//
// S and P have the same keys and decay, and so are one matrix: its scores are computed once. A tail
// row [k | v] is key and value of the first sum, a row [u | r] those of the second.
//
// The normaliser is one more value column of P: the extra value of r_t is q_t · Σ γ^{t-s} k_s.
//
// [S | P] is kept once a kv head without decay; with decay each query head has its own γ, and so
// its own.
#ifndef RIVULET_KERNELS_MIXERS_HLA_THIRD_ORDER_THIRD_ORDER_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_HLA_THIRD_ORDER_THIRD_ORDER_RECURRENCE_H_

#include "kernels/mixers/hla/higher_order/higher_order.h"

namespace rivulet {

class ThirdOrderRecurrence : public HigherOrderRecurrence {
 public:
  // Adds its planes to `layout`. REQUIRES: decay without a table or with shape.heads heads.
  ThirdOrderRecurrence(const HigherOrderShape& shape, DecayTable decay, StateLayout& layout);

  void Run(const MixerStep& step, const HigherOrderInput& input, FloatMatrix out) const override;

 private:
  // Index into the planes of [S | P] of a query head's sum.
  size_t SumHead(size_t head) const { return shared_sp_ ? head / shape_.group() : head; }

  void RunPiece(const PieceView& view, const HigherOrderInput& input, FloatMatrix out) const;
  void Append(const PieceView& view, const HigherOrderInput& input) const;
  void Read(const PieceView& view, ConstFloatMatrix q, size_t head, FloatMatrix out) const;
  void Fold(const PieceView& view, size_t head) const;
  SumTail TailSp(const PieceView& view, size_t head) const;
  SumTail TailF(const PieceView& view, size_t head) const;

  HigherOrderShape shape_;
  DecayTable decay_;
  bool shared_sp_;
  SumPlanes sp_, f_;
  RowPlanes kv_, ur_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_HLA_THIRD_ORDER_THIRD_ORDER_RECURRENCE_H_
