// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// RWKV-6 and RWKV-7 on a device (docs/mixers.md#rwkv-7): the token shift and the time mixing.
//
// Letters: T tokens, C tokens of a chunk, H heads, D key width, E value width; Dp and Ep are
// padded.
#ifndef RIVULET_KERNELS_DEVICE_RWKV_OPERATIONS_H_
#define RIVULET_KERNELS_DEVICE_RWKV_OPERATIONS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/device/device_types.h"

namespace rivulet {

inline constexpr size_t kMostMixtures = 6;

// y_m,t = x_t + (x_{t-1} - x_t) ∘ mix_m for each mixture m; x_{-1} = 0. State: a short
// convolution's with a window of two.
struct TokenShiftCall {
  DeviceRows rows;
  DeviceSlots slots;
  uint32_t channels = 0;
  Operand x;  // [T, channels]
  uint32_t mixtures = 0;
  const float* mix[kMostMixtures] = {};  // [channels]
  Operand y[kMostMixtures] = {};         // [T, channels], zeros in the padding
  uint32_t padded = 0;                   // channels of a row of the planes
  size_t before_offset = 0;              // base plane [1, padded], the rows' dtype
  size_t tail_offset = 0;                // tail plane [C, padded], the rows' dtype
  FloatMatrix difference = {};           // [T, channels]: x_{t-1} - x_t; null data: not kept
};

// y_m,t = x_t + difference_t ∘ (weights_m,t + bias_m) for each mixture m of a token's own.
struct OwnMixturesCall {
  Operand x;  // [T, channels]
  uint32_t channels = 0;
  ConstFloatMatrix difference;  // [T, channels]
  ConstFloatMatrix weights;     // [T, mixtures · channels]
  const float* bias = nullptr;  // [mixtures · channels]
  uint32_t mixtures = 0;
  Operand y[kMostMixtures] = {};  // [T, channels], zeros in the padding
};

enum class TimeMixForm : uint8_t { kRwkv6, kRwkv7 };

// For each head, in RWKV-7
//   v = v + (v¹ - v) ∘ σ(share)            w = e^{-e^{-1/2} σ(decay)}      ρ = σ(rate)
//   κ = (k ∘ removed) / √(|k ∘ removed|² + key_eps)                      a = -κ, b = κ ∘ ρ
//   k = k ∘ (1 + (ρ - 1) ∘ replaced)
//   u = a S      S = diag(w) S + bᵀ u + kᵀ v      o = r S
//   y = (layer norm(o) + (Σ r ∘ k ∘ bonus) v) ∘ gate
// and in RWKV-6, which has none of b, u and what makes them,
//   w = e^{-e^decay}      o = r S + (Σ r ∘ k ∘ bonus) v      S = diag(w) S + kᵀ v
//   y = layer norm(o) ∘ silu(gate)
// k, b, v and u are rounded to the rows' dtype before S sees them. The base keeps S at the last
// border, the tail what each token since did to it, and a step replays the tail: so the
// additions to S have one order for every cut.
struct TimeMixCall {
  TimeMixForm form = TimeMixForm::kRwkv7;
  DeviceRows rows;
  DeviceSlots slots;
  uint32_t heads = 0;                                      // H
  uint32_t key_dim = 0;                                    // D, at most kMostTimeMixKeys
  uint32_t value_dim = 0;                                  // E
  uint32_t padded_key = 0;                                 // Dp
  uint32_t padded_value = 0;                               // Ep
  ConstFloatMatrix r = {}, k = {}, decay = {}, rate = {};  // [T, H·D]
  ConstFloatMatrix v = {}, gate = {};                      // [T, H·E]
  ConstFloatMatrix first_values = {};                      // [T, H·E]: v¹
  ConstFloatMatrix share = {};                             // [T, H·E]; null data: v stays as it is
  const float* removed = nullptr;                          // [H·D]
  const float* replaced = nullptr;                         // [H·D]
  const float* bonus = nullptr;                            // [H·D]
  const float* norm_weight = nullptr;                      // [H·E]
  const float* norm_bias = nullptr;                        // [H·E]
  float key_eps = 0, norm_eps = 0;
  bool bf16_state = false;
  // Planes: base [H, Ep, Dp]; tail [H, C, 2 Dp] and [H, C, 2 Ep] of the rows' dtype, k before b and
  // v before u, or [H, C, Dp] and [H, C, Ep] in RWKV-6, and [H, C, Dp] fp32: w.
  size_t state_offset = 0, key_offset = 0, value_offset = 0, decay_offset = 0;
  // [T, H·E]: v after the first line; without `share` it may be first_values or v.
  FloatMatrix values = {};
  FloatMatrix out = {};        // [T, H·E], a temporary, perhaps not used: o
  FloatMatrix bonus_sum = {};  // [T, H], a temporary, perhaps not used
  Operand y = {};              // [T, H·E], zeros in the padding
};

inline constexpr uint32_t kMostTimeMixKeys = 512;
// The log decay of a channel lies between this, -e^{-1/2}, and 0.
inline constexpr float kFastestTimeMixDecay = -0.6065306597126334f;

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_RWKV_OPERATIONS_H_
