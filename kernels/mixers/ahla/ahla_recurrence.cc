// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/ahla/ahla_recurrence.h"

#include <utility>

namespace rivulet {

AhlaRecurrence::AhlaRecurrence(const HigherOrderShape& shape, DecayTable decay, StateLayout& layout)
    : shape_(shape), decay_(std::move(decay)), shared_p_(decay_.kind() == Decay::kNone) {
  const SumShape sum{shape.key_dim, shape.value_dim, decay_.kind(), shape.normalize,
                     shape.state_dtype};
  p_ = SumPlanes(sum, shared_p_ ? shape.kv_heads : shape.heads, "P", layout);
  e_ = SumPlanes(sum, shape.heads, "E", layout);
  k_ = RowPlanes(shape.kv_heads, shape.key_dim, false, "k", layout);
  v_ = RowPlanes(shape.kv_heads, shape.value_dim, false, "v", layout);
  r_ = RowPlanes(shape.heads, shape.value_dim, shape.normalize, "r", layout);
}

SumTail AhlaRecurrence::TailP(const PieceView& view, size_t head) const {
  const size_t kv_head = head / shape_.group();
  return TailOf(view, k_, kv_head, v_, kv_head, decay_.Head(head));
}

SumTail AhlaRecurrence::TailE(const PieceView& view, size_t head) const {
  return TailOf(view, k_, head / shape_.group(), r_, head, decay_.Head(head));
}

void AhlaRecurrence::Run(const MixerStep& step, const HigherOrderInput& input,
                         FloatMatrix out) const {
  const size_t work = shape_.group() * shape_.key_dim * 2 * shape_.padded_value();
  ForEachHeadUnit(
      step.segments, shape_.kv_heads, UnitWork(work), *step.pool,
      [&](const HeadPiece& piece) { RunPiece(PieceView(piece, step.state), input, out); });
}

// Rows first, then every read of the piece, and only then its folds: a fold may write the
// base that the reads are from.
void AhlaRecurrence::RunPiece(const PieceView& view, const HigherOrderInput& input,
                              FloatMatrix out) const {
  view.Append(k_, view.head, input.k);
  view.Append(v_, view.head, input.v);
  const size_t first = view.head * shape_.group(), last = first + shape_.group();
  for (size_t head = first; head < last; ++head) {
    Read(view, view.Head(input.q, head, shape_.padded_key()), head,
         view.Head(out, head, shape_.padded_value()));
  }
  if (!view.folds) return;
  for (size_t head = first; head < last; ++head) Fold(view, head);
}

// R goes straight into the tail, as the values of E.
void AhlaRecurrence::Read(const PieceView& view, ConstFloatMatrix q, size_t head,
                          FloatMatrix out) const {
  const SumQuery query{q, view.begin};
  float denominator[kFoldInterval];
  ReadSum(p_.shape(), p_.At(view.state, view.from, SumHead(head)), TailP(view, head), query,
          view.TailRows(r_, head), view.TailExtra(r_, head));
  ReadSum(e_.shape(), e_.At(view.state, view.from, head), TailE(view, head), query, out,
          shape_.normalize ? denominator : nullptr);
  if (shape_.normalize) DivideRows(out, denominator, shape_.denom_eps, shape_.value_dim);
}

void AhlaRecurrence::Fold(const PieceView& view, size_t head) const {
  if (!shared_p_ || head % shape_.group() == 0) {
    FoldSum(p_.shape(), p_.At(view.state, view.from, SumHead(head)),
            p_.At(view.state, view.to, SumHead(head)), TailP(view, head));
  }
  FoldSum(e_.shape(), e_.At(view.state, view.from, head), e_.At(view.state, view.to, head),
          TailE(view, head));
}

}  // namespace rivulet
