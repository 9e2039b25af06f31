// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/hla/third_order/paper_third_order_recurrence.h"

#include <iterator>
#include <utility>

namespace rivulet {

PaperThirdOrderRecurrence::PaperThirdOrderRecurrence(const HigherOrderShape& shape,
                                                     DecayTable decay, StateLayout& layout)
    : shape_(shape), decay_(std::move(decay)), shared_(decay_.kind() == Decay::kNone) {
  AddSums(layout);
  AddRows(layout);
}

void PaperThirdOrderRecurrence::AddSums(StateLayout& layout) {
  const size_t heads = shape_.heads, sum_heads = shared_ ? shape_.kv_heads : heads;
  const SumShape keys{shape_.key_dim, shape_.key_dim, decay_.kind(), false, shape_.state_dtype};
  const SumShape values{shape_.key_dim, shape_.value_dim, decay_.kind(), shape_.normalize,
                        shape_.state_dtype};
  s_ = SumPlanes(keys, sum_heads, "S", layout);
  sq_ = SumPlanes(keys, heads, "SQ", layout);
  p_ = SumPlanes(values, sum_heads, "P", layout);
  g_[0] = SumPlanes(values, heads, "G1", layout);
  g_[1] = SumPlanes(values, heads, "G2", layout);
  g_[2] = SumPlanes(values, heads, "G3", layout);
}

void PaperThirdOrderRecurrence::AddRows(StateLayout& layout) {
  const size_t heads = shape_.heads, d = shape_.key_dim, e = shape_.value_dim;
  k_ = RowPlanes(shape_.kv_heads, d, false, "k", layout);
  v_ = RowPlanes(shape_.kv_heads, e, false, "v", layout);
  q_ = RowPlanes(heads, d, false, "q", layout);
  a2_ = RowPlanes(heads, d, false, "a2", layout);
  a3_ = RowPlanes(heads, d, false, "a3", layout);
  w1_ = RowPlanes(heads, e, shape_.normalize, "w1", layout);
  w2_ = RowPlanes(heads, e, shape_.normalize, "w2", layout);
}

SumTail PaperThirdOrderRecurrence::TailS(const PieceView& view, size_t head) const {
  const size_t kv_head = head / shape_.group();
  return TailOf(view, k_, kv_head, k_, kv_head, decay_.Head(head));
}

SumTail PaperThirdOrderRecurrence::TailQ(const PieceView& view, size_t head) const {
  return TailOf(view, q_, head, q_, head, decay_.Head(head));
}

SumTail PaperThirdOrderRecurrence::TailP(const PieceView& view, size_t head) const {
  const size_t kv_head = head / shape_.group();
  return TailOf(view, k_, kv_head, v_, kv_head, decay_.Head(head));
}

PaperThirdOrderRecurrence::Correction PaperThirdOrderRecurrence::CorrectionOf(const PieceView& view,
                                                                              size_t head,
                                                                              size_t index) const {
  const size_t kv_head = head / shape_.group();
  const float* const decay = decay_.Head(head);
  if (index == 0) return {&g_[0], TailOf(view, k_, kv_head, w1_, head, decay)};
  if (index == 1) return {&g_[1], TailOf(view, a2_, head, w2_, head, decay)};
  return {&g_[2], TailOf(view, a3_, head, v_, kv_head, decay)};
}

void PaperThirdOrderRecurrence::Run(const MixerStep& step, const HigherOrderInput& input,
                                    FloatMatrix out) const {
  const size_t keys = shape_.heads * shape_.padded_key();
  const size_t values = shape_.heads * shape_.padded_value();
  const Scratch scratch{step.workspace->Take(out.rows, keys), step.workspace->Take(out.rows, keys),
                        step.workspace->Take(out.rows, keys),
                        step.workspace->Take(out.rows, values)};
  const size_t columns = 5 * shape_.padded_key() + 6 * shape_.padded_value();
  ForEachHeadUnit(
      step.segments, shape_.kv_heads, UnitWork(shape_.group() * shape_.key_dim * columns),
      *step.pool,
      [&](const HeadPiece& piece) { RunPiece(PieceView(piece, step.state), input, scratch, out); });
}

// Rows first, then every read of the piece, and only then its folds: a fold may write the
// base that the reads are from.
void PaperThirdOrderRecurrence::RunPiece(const PieceView& view, const HigherOrderInput& input,
                                         const Scratch& scratch, FloatMatrix out) const {
  view.Append(k_, view.head, input.k);
  view.Append(v_, view.head, input.v);
  const size_t first = view.head * shape_.group(), last = first + shape_.group();
  for (size_t head = first; head < last; ++head) {
    view.Append(q_, head, input.q);
    const FloatMatrix rows = view.Head(out, head, shape_.padded_value());
    float extra[kFoldInterval] = {};
    ReadCorrectionRows(view, input, view.Head(scratch.u, head, shape_.padded_key()), head);
    ReadNumerator(view, input, scratch, head, rows, extra);
    SubtractCorrections(view, input, view.Head(scratch.less, head, shape_.padded_value()), head,
                        rows, extra);
    if (shape_.normalize) DivideRows(rows, extra, shape_.denom_eps, shape_.value_dim);
  }
  if (!view.folds) return;
  for (size_t head = first; head < last; ++head) Fold(view, head);
}

// What the corrections sum is read before the token's own row counts.
void PaperThirdOrderRecurrence::ReadCorrectionRows(const PieceView& view,
                                                   const HigherOrderInput& input, FloatMatrix u,
                                                   size_t head) const {
  const size_t begin = view.begin, sum_head = SumHead(head);
  const ConstFloatMatrix q = view.Head(input.q, head, shape_.padded_key());
  const ConstFloatMatrix k = view.Head(input.k, head / shape_.group(), shape_.padded_key());
  const SumBase s = s_.At(view.state, view.from, sum_head);
  const SumBase p = p_.At(view.state, view.from, sum_head);
  const SumTail tail_s = TailS(view, head), tail_p = TailP(view, head);
  ReadSum(sq_.shape(), sq_.At(view.state, view.from, head), TailQ(view, head), {k, begin, true}, u,
          nullptr);
  ReadSum(p_.shape(), p, tail_p, {u, begin, true}, view.TailRows(w1_, head),
          view.TailExtra(w1_, head));
  ReadSum(s_.shape(), s, tail_s, {q, begin, true}, view.TailRows(a2_, head), nullptr);
  ReadSum(p_.shape(), p, tail_p, {q, begin, true}, view.TailRows(w2_, head),
          view.TailExtra(w2_, head));
  ReadSum(s_.shape(), s, tail_s, {u, begin, true}, view.TailRows(a3_, head), nullptr);
}

// ((q S_t) S^Q_t) P_t
void PaperThirdOrderRecurrence::ReadNumerator(const PieceView& view, const HigherOrderInput& input,
                                              const Scratch& scratch, size_t head, FloatMatrix out,
                                              float* extra) const {
  const size_t d = shape_.padded_key();
  const FloatMatrix y = view.Head(scratch.y, head, d), z = view.Head(scratch.z, head, d);
  ReadSum(s_.shape(), s_.At(view.state, view.from, SumHead(head)), TailS(view, head),
          {view.Head(input.q, head, d), view.begin}, y, nullptr);
  ReadSum(sq_.shape(), sq_.At(view.state, view.from, head), TailQ(view, head), {y, view.begin}, z,
          nullptr);
  ReadSum(p_.shape(), p_.At(view.state, view.from, SumHead(head)), TailP(view, head),
          {z, view.begin}, out, shape_.normalize ? extra : nullptr);
}

void PaperThirdOrderRecurrence::SubtractCorrections(const PieceView& view,
                                                    const HigherOrderInput& input, FloatMatrix less,
                                                    size_t head, FloatMatrix out,
                                                    float* extra) const {
  const SumQuery q{view.Head(input.q, head, shape_.padded_key()), view.begin};
  for (size_t index = 0; index < std::size(g_); ++index) {
    const Correction g = CorrectionOf(view, head, index);
    float less_extra[kFoldInterval] = {};
    ReadSum(g.sum->shape(), g.sum->At(view.state, view.from, head), g.tail, q, less,
            shape_.normalize ? less_extra : nullptr);
    AddScaledRows(-1.0f, less, out);
    for (size_t r = 0; r < view.rows(); ++r) extra[r] -= less_extra[r];
  }
}

void PaperThirdOrderRecurrence::Fold(const PieceView& view, size_t head) const {
  const auto fold = [&](const SumPlanes& sum, size_t sum_head, const SumTail& tail) {
    FoldSum(sum.shape(), sum.At(view.state, view.from, sum_head),
            sum.At(view.state, view.to, sum_head), tail);
  };
  if (!shared_ || head % shape_.group() == 0) {
    fold(s_, SumHead(head), TailS(view, head));
    fold(p_, SumHead(head), TailP(view, head));
  }
  fold(sq_, head, TailQ(view, head));
  for (size_t index = 0; index < std::size(g_); ++index) {
    const Correction g = CorrectionOf(view, head, index);
    fold(*g.sum, head, g.tail);
  }
}

}  // namespace rivulet
