// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The arguments of a device's operations (device.h). Plain values: kernels take them as they are.
// All pointers are to device memory.
#ifndef RIVULET_KERNELS_DEVICE_DEVICE_OPERATIONS_H_
#define RIVULET_KERNELS_DEVICE_DEVICE_OPERATIONS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/activation_kind.h"
#include "kernels/base/decay.h"
#include "kernels/base/tensor_view.h"
#include "kernels/device/device_types.h"

namespace rivulet {

// --- embedding and residual stream ------------------------------------------------------------

// The widest row of AddNorm.
inline constexpr uint32_t kMostNormedWidth = 8192;

// The factor 1 / sqrt(Σ squares / width + eps) of each row of a product A whose input x was to be
// RMS-normed with weights w. A (factor · w ∘ x) = factor · A (w ∘ x), so what makes w ∘ x need not
// know all of the row.
struct RowFactor {
  const float* squares = nullptr;  // [T, count]: sums of squares of parts of x
  uint32_t stride = 0;             // a multiple of four
  uint32_t count = 0;              // a multiple of four, but for AddNormCall
  uint32_t width = 0;              // numbers of a row of x
  float eps = 0;
  const float* values = nullptr;  // [T]: the factors themselves, instead of squares

  // Otherwise the factor is 1.
  constexpr bool given() const { return squares != nullptr || values != nullptr; }
};

// What a norm of rows x leaves for the map behind it: the operand y = w ∘ x, and the factors or, of
// Device::AddProduct, what they come of, the sums of the squares of kSquares neighbours.
struct LateNorm {
  static constexpr uint32_t kSquares = 8;
  // Of a row.
  static constexpr bool Serves(size_t hidden) { return hidden % (4 * kSquares) == 0; }

  const float* weight = nullptr;  // [hidden], begins at 16 bytes
  float eps = 0;
  Operand y = {};            // [T, hidden]; data null: there is no such norm
  float* squares = nullptr;  // [T, hidden / kSquares]
  uint32_t stride = 0;       // of squares
  float* factors = nullptr;  // [T]

  // What comes after the map, of rows of `hidden` numbers: of what was left.
  constexpr RowFactor Factor(size_t hidden, bool of_squares) const {
    const auto width = static_cast<uint32_t>(hidden);
    if (!of_squares) return {.width = width, .eps = eps, .values = factors};
    return {squares, stride, width / kSquares, width, eps};
  }
};

// x += factor · update (if given), and a late norm of x, which leaves factors.
struct AddLateCall {
  FloatMatrix x;                 // [T, hidden], hidden as LateNorm::Serves says
  ConstFloatMatrix update = {};  // [T, hidden]
  RowFactor factor = {};         // of the update
  LateNorm norm;
};

// The same of an update that is a product: x += factor · input Wᵀ.
struct AddProductCall {
  DeviceLinear linear;  // without a bias
  Operand input;
  RowFactor factor = {};
  FloatMatrix update;  // [T, hidden]: memory for a temporary
  FloatMatrix x;       // [T, hidden]
  LateNorm norm;
};

// A product y = factor · x Wᵀ whose outputs are left to another operation (ProjectAndRecur).
struct ProjectionCall {
  DeviceLinear linear;  // without a bias
  Operand x;
  RowFactor factor;  // given
  FloatMatrix y;     // [T, outputs]
};

// x = keep · x, + add · norm(factor · update) (if given); y = norm(x) (if given).
struct AddNormCall {
  FloatMatrix x;                  // [T, hidden]
  ConstFloatMatrix update = {};   // [T, hidden]
  RowFactor update_factor = {};   // of the update
  const float* weight = nullptr;  // [hidden], begins at 16 bytes and may be read up to a multiple
                                  // of four; null: y is x
  const float* bias = nullptr;    // null: RMSNorm, else LayerNorm
  float eps = 0;
  Operand y = {};  // data null: none
  // What few models have (OLMo Hybrid, MiniMax).
  const float* update_weight = nullptr;  // [hidden]; null: the update has no norm
  const float* update_bias = nullptr;    // as `bias`
  float update_eps = 0;
  float keep = 1, add = 1;
  bool keeps_normed = false;  // x becomes norm(x), also without y

  constexpr bool plain() const {
    return update_weight == nullptr && keep == 1 && add == 1 && !keeps_normed &&
           (weight != nullptr || y.data == nullptr);
  }
};

// y = factor · x, rounded again. y may be x.
struct ScaleOperandCall {
  Operand x;
  float factor = 1;
  Operand y;
};

// --- maps of blocks of columns -----------------------------------------------------------------

// y [T, · y_step] = W_b x_b for each block b of columns:
//   y[t, b · y_step + n] = Σ_k x[t, b · x_step + k] W[b · N + n, k] + bias[b · N + n]
struct BlockProductCall {
  DeviceLinear linear;  // [blocks · N, K], without a scale
  uint32_t blocks = 0;
  Operand x;  // [T, blocks · x_step], zeros from K to x_step in each block
  uint32_t x_step = 0;
  FloatMatrix y;
  uint32_t y_step = 0;
};

// --- row preparation --------------------------------------------------------------------------

enum class DeviceHeadNorm : uint8_t {
  kNone,
  kL2,
  kRms,       // over the root of the mean square
  kSum,       // over Σ, or zeros where that is zero
  kSumOfPhi,  // over Σ + 1e-4, as linear attention's features
};

// Whether a norm is of the numbers themselves and not of their squares.
constexpr bool AddsUp(DeviceHeadNorm norm) {
  return norm == DeviceHeadNorm::kSum || norm == DeviceHeadNorm::kSumOfPhi;
}

// Some heads of a token's inputs, from a projection's columns to what the recurrence reads:
//   y = scale · norm(clamp(rate ∘ f(multiplier ∘ convolution(x) + bias)))
struct PreparedPart {
  const float* x = nullptr;  // [T, heads · width]
  uint32_t x_stride = 0;
  float* y = nullptr;  // [T, heads · padded], zeros in the padding
  uint32_t y_stride = 0;
  uint32_t heads = 1;
  uint32_t width = 0;
  uint32_t head_stride = 0;  // of x; 0: width. With one the part is not convolved
  uint32_t padded = 0;
  int32_t channel = -1;  // of the convolution's, for the first number; -1: not convolved
  Activation f = Activation::kIdentity;
  DeviceHeadNorm norm = DeviceHeadNorm::kNone;
  const float* norm_weight = nullptr;  // kRms: [width], as AddNormCall::weight
  float scale = 1;
  const float* multiplier = nullptr;  // [heads · width] or null
  const float* bias = nullptr;        // [heads · width] or null
  const float* rate = nullptr;        // [heads · width] or null
  float low = -__builtin_huge_valf();
  float high = __builtin_huge_valf();
  float norm_eps = 1e-6f;  // kL2: x / sqrt(Σ x² + eps); kRms: of the mean of x²
};

inline constexpr size_t kMaxPreparedParts = 8;
// The widest head that has a norm or padding.
inline constexpr uint32_t kMostPreparedWidth = 512;

// The short convolution over adjacent columns (ops/short_convolution): window W.
struct DeviceConvolution {
  const float* x = nullptr;  // [T, channels]
  uint32_t x_stride = 0;
  const float* gate = nullptr;  // [T, channels]: the convolution is of gate ∘ x; null: of x
  uint32_t gate_stride = 0;
  const float* weight = nullptr;  // [W, padded channels]
  const float* bias = nullptr;    // [padded channels]
  uint32_t channels = 0;
  uint32_t weight_stride = 0;  // padded channels
  uint32_t window = 0;         // 0: none
  bool silu = false;
  size_t before_offset = 0;  // base plane [W-1, padded channels], rows' dtype
  size_t tail_offset = 0;    // tail plane [C, padded channels], rows' dtype
};

struct PrepareCall {
  DeviceRows rows;
  DeviceSlots slots;
  DeviceConvolution convolution;
  PreparedPart parts[kMaxPreparedParts];
  uint32_t part_count = 0;
  uint32_t fold_interval = 16;
  // [T]: what every number of a token that a part or the convolution reads is multiplied with
  // first; null: nothing. There is no gate of the convolution then.
  const float* factors = nullptr;
};

// Rotary positions (ops/rope), in place.
struct RotateCall {
  DeviceRows rows;
  FloatMatrix x;  // [T, heads · head_stride]
  uint32_t heads = 0;
  uint32_t head_stride = 0;
  const float* frequencies = nullptr;  // [half]
  uint32_t half = 0;                   // of the rotated numbers of a head
  float amplitude = 1.0f;              // of cosines and sines
};

// --- recurrence -------------------------------------------------------------------------------

// A normaliser is kept once for each 64 value columns, so that blocks need not wait for each other.
constexpr uint32_t NormaliserCopies(uint32_t padded_value) { return (padded_value + 63) / 64; }

// Outputs o [T, units · E] of a recurrence, gated and weighted, as the operand of the map that
// comes next; the factor of their norm comes after that map (RowFactor).
struct GatedOutputs {
  // Numbers whose squares are added up first.
  static constexpr uint32_t kSquares = 16;

  const float* gate = nullptr;  // [T, units · E]; null: outputs are stored as they are
  uint32_t gate_stride = 0;
  const float* weight = nullptr;  // [units · E]
  Operand y = {};                 // [T, units · E], without padding: weight ∘ silu(gate) ∘ o
  float* squares = nullptr;       // [T, units · E / kSquares]: Σ (silu(gate) ∘ o)²
  uint32_t squares_stride = 0;
  const float* gate_factors = nullptr;  // [T]: of the gate before its function; null: 1
};

// A sum with one read (kernels/recurrence/declaration.h), optionally by the delta rule.
struct RecurCall {
  DeviceRows rows;
  DeviceSlots slots;
  uint32_t units = 0;            // states of the sum: heads, or groups of heads that share one
  uint32_t unit_heads = 1;       // heads of a unit, each with a query
  uint32_t units_per_key = 1;    // units that share a key row
  uint32_t units_per_value = 1;  // units that share a value row
  uint32_t units_per_decay = 1;  // units that share decays by channel
  uint32_t key_dim = 0;          // D
  uint32_t value_dim = 0;        // E
  uint32_t padded_key = 0;       // Dp
  uint32_t padded_value = 0;     // Ep
  const float* q = nullptr;      // [T, · Dp]: a query of each head, or of each key row
  uint32_t q_stride = 0;
  bool query_per_head = true;
  const float* k = nullptr;  // [T, units / units_per_key · Dp]
  uint32_t k_stride = 0;
  const float* v = nullptr;  // [T, units / units_per_value · v_head_stride]
  uint32_t v_stride = 0;
  uint32_t v_head_stride = 0;
  Decay decay = Decay::kNone;
  // [T, units] or [T, units / units_per_decay · Dp]: log decays, or the steps Δ
  const float* g = nullptr;
  uint32_t g_stride = 0;
  const float* rate = nullptr;      // [units]: g = rate · Δ; null: g as it is
  const float* constant = nullptr;  // [units, C]: cumulative log decays of a chunk; null: g
  bool times_step = false;          // v = Δ · v
  bool delta = false;
  const float* beta = nullptr;  // [T, units], or one row for all tokens (stride 0)
  uint32_t beta_stride = 0;
  const float* skip = nullptr;  // [units · E]
  // The outputs are divided by the reads n of one more value column, 1 for each token: o / (n +
  // eps), or o · (1 / (n + eps)). With neither a delta rule nor decays by channel.
  bool normaliser = false;
  bool reciprocal = false;
  float denominator_eps = 0;
  bool bf16_state = false;
  // Planes: base [units, Ep, Dp] in fragment order, [units, NormaliserCopies, Dp] fp32; tail [keys,
  // C, Dp] and [units, C, Ep] of the rows' dtype, [units, C] or [decays, C, Dp] fp32.
  size_t state_offset = 0, normaliser_offset = 0;
  size_t key_offset = 0, value_offset = 0, decay_offset = 0;
  FloatMatrix out;  // [T, units · unit_heads · Ep]
  // With a gate, `out` is memory for temporaries. Then unit_heads is 1, and E = Ep, a multiple of
  // GatedOutputs::kSquares.
  GatedOutputs gated = {};
};

// --- row finish -------------------------------------------------------------------------------

enum class FinishOrder : uint8_t {
  kNormThenGate,  // norm(o) · gate
  kGateThenNorm,  // norm(o · gate)
  kGateOnly,      // o · gate
};

// y [T, heads · width] from f(o [T, heads · padded]); norm is over groups of `norm_width` numbers.
// kGateOnly: norm_width is how many numbers a warp or a block takes at a time.
struct FinishCall {
  ConstFloatMatrix o;
  ConstFloatMatrix gate = {};  // [T, heads · width], under gate_f; null data: none
  uint32_t heads = 1, width = 0, padded = 0;
  uint32_t norm_width = 0;
  FinishOrder order = FinishOrder::kNormThenGate;
  Activation f = Activation::kIdentity;
  Activation gate_f = Activation::kSilu;
  const float* weight = nullptr;  // null: ones
  uint32_t weight_period = 0;     // weight[i mod period]
  float eps = 0;
  Operand y;
};

// --- logits -----------------------------------------------------------------------------------

// y [count, columns] = rows `tokens` of x.
struct GatherCall {
  ConstFloatMatrix x;
  const uint32_t* tokens = nullptr;
  uint32_t count = 0;
  FloatMatrix y;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_DEVICE_OPERATIONS_H_
