// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/hla/third_order/third_order_recurrence.h"

#include <cstring>
#include <utility>

namespace rivulet {
namespace {

constexpr float kThird = 3.0f;  // F decays by γ³

void CopyRows(ConstFloatMatrix from, FloatMatrix to) {
  for (size_t r = 0; r < from.rows; ++r) {
    std::memcpy(to.row(r), from.row(r), from.columns * sizeof(float));
  }
}

}  // namespace

ThirdOrderRecurrence::ThirdOrderRecurrence(const HigherOrderShape& shape, DecayTable decay,
                                           StateLayout& layout)
    : shape_(shape), decay_(std::move(decay)), shared_sp_(decay_.kind() == Decay::kNone) {
  const size_t both = shape.padded_key() + shape.value_dim;
  const SumShape first{shape.key_dim, both, decay_.kind(), shape.normalize, shape.state_dtype};
  const SumShape second{shape.key_dim, shape.value_dim, decay_.kind(), shape.normalize,
                        shape.state_dtype};
  sp_ = SumPlanes(first, shared_sp_ ? shape.kv_heads : shape.heads, "SP", layout);
  f_ = SumPlanes(second, shape.heads, "F", layout);
  kv_ = RowPlanes(shape.kv_heads, both, false, "kv", layout);
  ur_ = RowPlanes(shape.heads, both, shape.normalize, "ur", layout);
}

SumTail ThirdOrderRecurrence::TailSp(const PieceView& view, size_t head) const {
  const size_t kv_head = head / shape_.group();
  return TailOf(view, kv_, kv_head, kv_, kv_head, decay_.Head(head));
}

SumTail ThirdOrderRecurrence::TailF(const PieceView& view, size_t head) const {
  SumTail tail = TailOf(view, ur_, head, ur_, head, decay_.Head(head), kThird);
  tail.value += shape_.padded_key();
  return tail;
}

void ThirdOrderRecurrence::Run(const MixerStep& step, const HigherOrderInput& input,
                               FloatMatrix out) const {
  const size_t columns = shape_.padded_key() + 2 * shape_.padded_value();
  const size_t work = shape_.group() * shape_.key_dim * columns;
  ForEachHeadUnit(
      step.segments, shape_.kv_heads, UnitWork(work), *step.pool,
      [&](const HeadPiece& piece) { RunPiece(PieceView(piece, step.state), input, out); });
}

// Rows first, then every read of the piece, and only then its folds: a fold may write the
// base that the reads are from.
void ThirdOrderRecurrence::RunPiece(const PieceView& view, const HigherOrderInput& input,
                                    FloatMatrix out) const {
  Append(view, input);
  const size_t first = view.head * shape_.group(), last = first + shape_.group();
  for (size_t head = first; head < last; ++head) {
    Read(view, view.Head(input.q, head, shape_.padded_key()), head,
         view.Head(out, head, shape_.padded_value()));
  }
  if (!view.folds) return;
  for (size_t head = first; head < last; ++head) Fold(view, head);
}

void ThirdOrderRecurrence::Append(const PieceView& view, const HigherOrderInput& input) const {
  const size_t d = shape_.padded_key(), e = shape_.padded_value();
  const FloatMatrix rows = view.TailRows(kv_, view.head);
  CopyRows(view.Head(input.k, view.head, d), rows.Columns(0, d));
  CopyRows(view.Head(input.v, view.head, e), rows.Columns(d, e));
}

// [U | R] goes straight into the tail, as the keys and values of F.
void ThirdOrderRecurrence::Read(const PieceView& view, ConstFloatMatrix q, size_t head,
                                FloatMatrix out) const {
  const SumQuery query{q, view.begin};
  float denominator[kFoldInterval];
  ReadSum(sp_.shape(), sp_.At(view.state, view.from, SumHead(head)), TailSp(view, head), query,
          view.TailRows(ur_, head), view.TailExtra(ur_, head));
  ReadSum(f_.shape(), f_.At(view.state, view.from, head), TailF(view, head), query, out,
          shape_.normalize ? denominator : nullptr);
  if (shape_.normalize) DivideRows(out, denominator, shape_.denom_eps, shape_.value_dim);
}

void ThirdOrderRecurrence::Fold(const PieceView& view, size_t head) const {
  const auto fold = [&](const SumPlanes& sum, size_t sum_head, const SumTail& tail) {
    FoldSum(sum.shape(), sum.At(view.state, view.from, sum_head),
            sum.At(view.state, view.to, sum_head), tail);
  };
  if (!shared_sp_ || head % shape_.group() == 0) fold(sp_, SumHead(head), TailSp(view, head));
  fold(f_, head, TailF(view, head));
}

}  // namespace rivulet
