// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the higher-order recurrences (HLA, AHLA) share: the sizes of their heads, the planes they
// keep their sums and rows in, the walk over (segment, kv head) units, and the interface through
// which the layer runs any of them. A recurrence itself is a few ReadSum / FoldSum calls per piece
// of a chunk; those stand in the mixers' own folders, beside their formulas.
//
// Letters: T tokens of the step, H query heads, Hkv kv heads, D key width, E value width,
// C = kFoldInterval. Dp and Ep are the padded widths. kv head j serves the query heads
// j * H/Hkv ... (docs/mixers.md#softmax-attention). All activations are fp32.
//
// It deliberately knows no config, no weights but the decay, and no output norm.
//
// Threading: everything here is constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_HLA_HIGHER_ORDER_HIGHER_ORDER_H_
#define RIVULET_KERNELS_MIXERS_HLA_HIGHER_ORDER_HIGHER_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/mixers/mixer.h"
#include "kernels/recurrence/head_units.h"
#include "kernels/recurrence/recurrence.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// The cumulative log decays of a chunk, c_a = (a + 1) log γ, for each query head. γ is a constant
// of the head, so the table is a constant too and costs no tail rows.
class DecayTable {
 public:
  DecayTable() = default;  // γ = 1: no decay

  // logits [H]: γ_h = σ(logits[h]) (docs/mixers.md#hla-format). log γ comes straight from
  // logsigmoid and never from γ: rounding γ = 0.999 to fp32 alone costs 1e-5 at 4096 tokens
  // (docs/mixers.md#precision).
  explicit DecayTable(const AlignedBuffer<float>& logits);

  Decay kind() const { return table_.empty() ? Decay::kNone : Decay::kScalar; }
  // [C] of one query head, or null without decay.
  const float* Head(size_t head) const {
    return table_.empty() ? nullptr : table_.data() + head * kFoldInterval;
  }

 private:
  AlignedBuffer<float> table_;  // [H, C]
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

  size_t group() const { return heads / kv_heads; }
  size_t padded_key() const { return PaddedColumns(key_dim); }
  size_t padded_value() const { return PaddedColumns(value_dim); }
};

// The work of one token of one unit, for ForEachHeadUnit: a matrix element is one multiply-add from
// L1 or L2, an eighth of what an element of a norm or an activation costs.
constexpr size_t UnitWork(size_t matrix_elements) { return matrix_elements / 8; }

// What the recurrence sees of a step, after projection, convolution, activation, norm and scale:
// q [T, H * Dp], k [T, Hkv * Dp], v [T, Hkv * Ep], zeros in the padding (kernels/ops/heads).
struct HigherOrderInput {
  ConstFloatMatrix q, k, v;
};

class HigherOrderRecurrence {
 public:
  virtual ~HigherOrderRecurrence() = default;

  // out [T, H * Ep] = each head's output, divided by its normaliser if the shape says so. Advances
  // the state of every segment. Temporaries come from step.workspace.
  virtual void Run(const MixerStep& step, const HigherOrderInput& input, FloatMatrix out) const = 0;
};

// One sum's planes: a matrix [D, Ep] for each of `heads` heads, and its normaliser [Dp] if the
// shape has one.
class SumPlanes {
 public:
  SumPlanes() = default;  // not kept; At must not be called
  SumPlanes(const SumShape& shape, size_t heads, std::string_view name, StateLayout& layout);

  const SumShape& shape() const { return shape_; }
  SumBase At(const LayerState& state, uint32_t slot, size_t head) const;

 private:
  SumShape shape_;
  size_t matrix_offset_ = 0;
  size_t normaliser_offset_ = 0;
};

// Tail rows [C, padded width] for each of `heads` heads, with one more number a row, kept apart
// ([C] each), if `extra`.
class RowPlanes {
 public:
  RowPlanes() = default;  // not kept; the others must not be called
  RowPlanes(size_t heads, size_t width, bool extra, std::string_view name, StateLayout& layout);

  size_t padded() const { return padded_; }
  // [C, padded], stride padded().
  float* Rows(const LayerState& state, uint32_t slot, size_t head) const;
  // [C], or null without extra.
  float* Extra(const LayerState& state, uint32_t slot, size_t head) const;

 private:
  size_t padded_ = 0;
  size_t rows_offset_ = 0;
  size_t extra_offset_ = 0;
  bool has_extra_ = false;
};

// A piece of a chunk with the state it works on; HeadPiece::head is the kv head.
struct PieceView : HeadPiece {
  PieceView(const HeadPiece& piece, const LayerState& layer) : HeadPiece(piece), state(layer) {}

  const LayerState& state;

  // The piece's rows of one head in a [T, heads * padded] matrix.
  template <typename T>
  MatrixView<T> Head(const MatrixView<T>& matrix, size_t index, size_t padded) const {
    return Of(matrix, index * padded, padded);
  }
  // The piece's places of one head's tail rows.
  FloatMatrix TailRows(const RowPlanes& planes, size_t index) const {
    float* base = planes.Rows(state, tail, index);
    return {base + begin * planes.padded(), rows(), planes.padded(), planes.padded()};
  }
  // The same of the extra column; null without one.
  float* TailExtra(const RowPlanes& planes, size_t index) const {
    float* base = planes.Extra(state, tail, index);
    return base == nullptr ? nullptr : base + begin;
  }
  // Copies the piece's rows of one head from a [T, heads * padded] matrix into the tail.
  void Append(const RowPlanes& planes, size_t index, ConstFloatMatrix matrix) const {
    AppendRows(Head(matrix, index, planes.padded()), begin, planes.Rows(state, tail, index));
  }
};

// Keys and values of one head's sum, in the tail.
SumTail TailOf(const PieceView& view, const RowPlanes& keys, size_t key_head,
               const RowPlanes& values, size_t value_head, const float* log_decay,
               float decay_power = 1.0f);

// out [n, E] /= extra [n] + eps, in place (docs/mixers.md#hla-definitions). Padding is left alone.
void DivideRows(FloatMatrix out, const float* extra, float eps, size_t value_dim);

// y += scale * x over [n, columns].
void AddScaledRows(float scale, ConstFloatMatrix x, FloatMatrix y);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_HLA_HIGHER_ORDER_HIGHER_ORDER_H_
