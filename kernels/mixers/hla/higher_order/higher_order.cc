// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/hla/higher_order/higher_order.h"

#include <cmath>
#include <string>

namespace rivulet {
namespace {

// -log(1 + e^{-x}), stable on both sides. Double, because it is multiplied by up to C before it is
// rounded.
double LogSigmoid(double x) {
  return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x));
}

}  // namespace

DecayTable::DecayTable(const AlignedBuffer<float>& logits) : table_(logits.size() * kFoldInterval) {
  for (size_t h = 0; h < logits.size(); ++h) {
    const double log_gamma = LogSigmoid(logits[h]);
    for (size_t a = 0; a < kFoldInterval; ++a) {
      table_[h * kFoldInterval + a] = static_cast<float>(static_cast<double>(a + 1) * log_gamma);
    }
  }
}

SumPlanes::SumPlanes(const SumShape& shape, size_t heads, std::string_view name,
                     StateLayout& layout)
    : shape_(shape),
      matrix_offset_(layout.Add(StatePart::kBase, name, shape.dtype,
                                {heads, shape.key_dim, shape.padded_value()})) {
  if (!shape.normaliser) return;
  normaliser_offset_ = layout.Add(StatePart::kBase, std::string(name) + "_normaliser",
                                  DType::kFloat32, {heads, shape.padded_key()});
}

SumBase SumPlanes::At(const LayerState& state, uint32_t slot, size_t head) const {
  const size_t matrix_bytes = shape_.matrix_elements() * DTypeSize(shape_.dtype);
  SumBase base;
  base.matrix = state.Base<std::byte>(slot, matrix_offset_) + head * matrix_bytes;
  if (shape_.normaliser) {
    base.normaliser = state.Base<float>(slot, normaliser_offset_) + head * shape_.padded_key();
  }
  return base;
}

RowPlanes::RowPlanes(size_t heads, size_t width, bool extra, std::string_view name,
                     StateLayout& layout)
    : padded_(PaddedColumns(width)),
      rows_offset_(
          layout.Add(StatePart::kTail, name, DType::kFloat32, {heads, kFoldInterval, padded_})),
      has_extra_(extra) {
  if (!extra) return;
  extra_offset_ = layout.Add(StatePart::kTail, std::string(name) + "_extra", DType::kFloat32,
                             {heads, kFoldInterval});
}

float* RowPlanes::Rows(const LayerState& state, uint32_t slot, size_t head) const {
  return state.Tail<float>(slot, rows_offset_) + head * kFoldInterval * padded_;
}

float* RowPlanes::Extra(const LayerState& state, uint32_t slot, size_t head) const {
  if (!has_extra_) return nullptr;
  return state.Tail<float>(slot, extra_offset_) + head * kFoldInterval;
}

SumTail TailOf(const PieceView& view, const RowPlanes& keys, size_t key_head,
               const RowPlanes& values, size_t value_head, const float* log_decay,
               float decay_power) {
  SumTail tail;
  tail.key = keys.Rows(view.state, view.tail, key_head);
  tail.key_stride = keys.padded();
  tail.value = values.Rows(view.state, view.tail, value_head);
  tail.value_stride = values.padded();
  tail.extra = values.Extra(view.state, view.tail, value_head);
  tail.extra_stride = 1;
  tail.log_decay = log_decay;
  tail.decay_stride = 1;
  tail.decay_power = decay_power;
  return tail;
}

void DivideRows(FloatMatrix out, const float* extra, float eps, size_t value_dim) {
  for (size_t r = 0; r < out.rows; ++r) {
    const float denominator = extra[r] + eps;
    float* row = out.row(r);
    for (size_t i = 0; i < value_dim; ++i) row[i] /= denominator;
  }
}

void AddScaledRows(float scale, ConstFloatMatrix x, FloatMatrix y) {
  for (size_t r = 0; r < y.rows; ++r) {
    const float* from = x.row(r);
    float* to = y.row(r);
    for (size_t i = 0; i < y.columns; ++i) to[i] += scale * from[i];
  }
}

}  // namespace rivulet
