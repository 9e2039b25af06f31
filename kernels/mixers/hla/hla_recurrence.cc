// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/hla/hla_recurrence.h"

#include <utility>

namespace rivulet {

HlaRecurrence::HlaRecurrence(const HigherOrderShape& shape, HlaForm form, float ridge_lambda,
                             DecayTable decay, StateLayout& layout)
    : shape_(shape),
      form_(form),
      ridge_lambda_(ridge_lambda),
      decay_(std::move(decay)),
      shared_s_(decay_.kind() == Decay::kNone) {
  AddSums(layout);
  AddRows(layout);
}

void HlaRecurrence::AddSums(StateLayout& layout) {
  const SumShape keys{shape_.key_dim, shape_.key_dim, decay_.kind(), false, shape_.state_dtype};
  const SumShape values{shape_.key_dim, shape_.value_dim, decay_.kind(), shape_.normalize,
                        shape_.state_dtype};
  s_ = SumPlanes(keys, shared_s_ ? shape_.kv_heads : shape_.heads, "S", layout);
  if (KeepsC()) c_ = SumPlanes(values, shape_.heads, "C", layout);
  if (form_ == HlaForm::kMasked) f_ = SumPlanes(values, shape_.heads, "F", layout);
  if (form_ == HlaForm::kSerial) g_ = SumPlanes(values, shape_.heads, "G", layout);
}

void HlaRecurrence::AddRows(StateLayout& layout) {
  k_ = RowPlanes(shape_.kv_heads, shape_.key_dim, false, "k", layout);
  v_ = RowPlanes(shape_.kv_heads, shape_.value_dim, false, "v", layout);
  if (KeepsC()) q_ = RowPlanes(shape_.heads, shape_.key_dim, false, "q", layout);
  if (form_ == HlaForm::kMasked) u_ = RowPlanes(shape_.heads, shape_.key_dim, false, "u", layout);
  if (form_ == HlaForm::kSerial) {
    y_ = RowPlanes(shape_.heads, shape_.value_dim, shape_.normalize, "y", layout);
  }
}

SumTail HlaRecurrence::TailS(const PieceView& view, size_t head) const {
  const size_t kv_head = head / shape_.group();
  return TailOf(view, k_, kv_head, k_, kv_head, decay_.Head(head));
}

SumTail HlaRecurrence::TailF(const PieceView& view, size_t head) const {
  return TailOf(view, u_, head, v_, head / shape_.group(), decay_.Head(head), 2.0f);
}

SumTail HlaRecurrence::TailC(const PieceView& view, size_t head) const {
  return TailOf(view, q_, head, v_, head / shape_.group(), decay_.Head(head));
}

SumTail HlaRecurrence::TailG(const PieceView& view, size_t head) const {
  return TailOf(view, k_, head / shape_.group(), y_, head, decay_.Head(head));
}

void HlaRecurrence::Run(const MixerStep& step, const HigherOrderInput& input,
                        FloatMatrix out) const {
  Scratch scratch;
  const size_t tokens = out.rows;
  if (form_ != HlaForm::kMasked) {
    scratch.u = step.workspace->Take(tokens, shape_.heads * shape_.padded_key());
  }
  if (form_ == HlaForm::kSerial || (form_ == HlaForm::kMasked && KeepsC())) {
    scratch.numerator = step.workspace->Take(tokens, shape_.heads * shape_.padded_value());
  }
  const size_t work =
      shape_.group() * shape_.key_dim * (shape_.padded_key() + shape_.padded_value());
  ForEachHeadUnit(
      step.segments, shape_.kv_heads, UnitWork(work), *step.pool,
      [&](const HeadPiece& piece) { RunPiece(PieceView(piece, step.state), input, scratch, out); });
}

// Rows first, then every read of the piece, and only then its folds: a fold may write the
// base that the reads are from.
void HlaRecurrence::RunPiece(const PieceView& view, const HigherOrderInput& input,
                             const Scratch& scratch, FloatMatrix out) const {
  view.Append(k_, view.head, input.k);
  view.Append(v_, view.head, input.v);
  const size_t first = view.head * shape_.group(), last = first + shape_.group();
  for (size_t head = first; head < last; ++head) {
    if (KeepsC()) view.Append(q_, head, input.q);
    const FloatMatrix rows = view.Head(out, head, shape_.padded_value());
    float extra[kFoldInterval] = {};
    if (form_ == HlaForm::kMasked) {
      ReadMasked(view, input, scratch, head, rows, extra);
    } else {
      ReadProduct(view, input, scratch, head, rows, extra);
    }
    if (shape_.normalize) DivideRows(rows, extra, shape_.denom_eps, shape_.value_dim);
  }
  if (!view.folds) return;
  for (size_t head = first; head < last; ++head) Fold(view, head);
}

// U = LA(Q, K, K; S, γ) goes straight into the tail, as the keys of F.
void HlaRecurrence::ReadMasked(const PieceView& view, const HigherOrderInput& input,
                               const Scratch& scratch, size_t head, FloatMatrix out,
                               float* extra) const {
  const SumQuery q{view.Head(input.q, head, shape_.padded_key()), view.begin};
  ReadSum(s_.shape(), s_.At(view.state, view.from, SumHead(head)), TailS(view, head), q,
          view.TailRows(u_, head), nullptr);
  float* const denominator = shape_.normalize ? extra : nullptr;
  ReadSum(f_.shape(), f_.At(view.state, view.from, head), TailF(view, head), q, out, denominator);
  if (!KeepsC()) return;

  const FloatMatrix ridge = view.Head(scratch.numerator, head, shape_.padded_value());
  float ridge_extra[kFoldInterval] = {};
  ReadSum(c_.shape(), c_.At(view.state, view.from, head), TailC(view, head), q, ridge,
          shape_.normalize ? ridge_extra : nullptr);
  AddScaledRows(ridge_lambda_, ridge, out);
  for (size_t r = 0; r < view.rows(); ++r) extra[r] += ridge_lambda_ * ridge_extra[r];
}

// (U + λQ) C, and for the serial form less Q G.
void HlaRecurrence::ReadProduct(const PieceView& view, const HigherOrderInput& input,
                                const Scratch& scratch, size_t head, FloatMatrix out,
                                float* extra) const {
  const ConstFloatMatrix q = view.Head(input.q, head, shape_.padded_key());
  const FloatMatrix u = view.Head(scratch.u, head, shape_.padded_key());
  ReadSum(s_.shape(), s_.At(view.state, view.from, SumHead(head)), TailS(view, head),
          {q, view.begin}, u, nullptr);
  if (ridge_lambda_ != 0.0f) AddScaledRows(ridge_lambda_, q, u);
  ReadSum(c_.shape(), c_.At(view.state, view.from, head), TailC(view, head), {u, view.begin}, out,
          shape_.normalize ? extra : nullptr);
  if (form_ == HlaForm::kSerial) SubtractG(view, input, scratch, head, out, extra);
}

// y_t = k_t C_{t-1} reads C as it was before token t: the paper's Algorithm 1 lists the update of C
// first, and would be wrong in place (docs/mixers.md#hla-errata).
void HlaRecurrence::SubtractG(const PieceView& view, const HigherOrderInput& input,
                              const Scratch& scratch, size_t head, FloatMatrix out,
                              float* extra) const {
  const size_t begin = view.begin;
  const ConstFloatMatrix k = view.Head(input.k, head / shape_.group(), shape_.padded_key());
  ReadSum(c_.shape(), c_.At(view.state, view.from, head), TailC(view, head), {k, begin, true},
          view.TailRows(y_, head), view.TailExtra(y_, head));

  const ConstFloatMatrix q = view.Head(input.q, head, shape_.padded_key());
  const FloatMatrix less = view.Head(scratch.numerator, head, shape_.padded_value());
  float less_extra[kFoldInterval] = {};
  ReadSum(g_.shape(), g_.At(view.state, view.from, head), TailG(view, head), {q, begin}, less,
          shape_.normalize ? less_extra : nullptr);
  AddScaledRows(-1.0f, less, out);
  for (size_t r = 0; r < view.rows(); ++r) extra[r] -= less_extra[r];
}

void HlaRecurrence::Fold(const PieceView& view, size_t head) const {
  const auto fold = [&](const SumPlanes& sum, size_t sum_head, const SumTail& tail) {
    FoldSum(sum.shape(), sum.At(view.state, view.from, sum_head),
            sum.At(view.state, view.to, sum_head), tail);
  };
  if (!shared_s_ || head % shape_.group() == 0) fold(s_, SumHead(head), TailS(view, head));
  if (KeepsC()) fold(c_, head, TailC(view, head));
  if (form_ == HlaForm::kMasked) fold(f_, head, TailF(view, head));
  if (form_ == HlaForm::kSerial) fold(g_, head, TailG(view, head));
}

}  // namespace rivulet
