// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Operations of states that are kept after every token (Mamba's selective scan, H3's modes), and
// H3's filter over its keys. A state is kept as if C were 1: the tail slot holds it after the last
// token, the base slot holds it at the last chunk border. A chunk's first token goes on from the
// base, its others from the tail, and its last one writes the next base (StateLayout::
// SetRunningTail). The state before the first token of a session is zero; its slots are not read.
//
// Letters: T tokens, C tokens of a chunk, I channels, N states of a channel, Hs heads of width hd,
// D = Hs · hd, M modes of a head, R rows of the ring of keys; Ip, Dp, Np and Mp are padded.
#ifndef RIVULET_KERNELS_DEVICE_RUNNING_STATE_OPERATIONS_H_
#define RIVULET_KERNELS_DEVICE_RUNNING_STATE_OPERATIONS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/device/device_types.h"

namespace rivulet {

// The most states of a channel that SelectiveScanCall takes, and Np: a multiple of 16 and 1, 2 or 4
// times as many.
inline constexpr size_t kMostScanStates = 64;
constexpr uint32_t PaddedScanStates(size_t states) {
  return states <= 16 ? 16 : states <= 32 ? 32 : 64;
}

// h = e^{Δ A} ∘ h + (Δ x) ⊗ B,  y = (h C + skip ∘ x) ∘ silu(z),  Δ = softplus(dt).
struct SelectiveScanCall {
  DeviceRows rows;
  DeviceSlots slots;
  uint32_t channels = 0;        // I
  uint32_t state_size = 0;      // N
  uint32_t padded_state = 0;    // Np
  const float* a = nullptr;     // [Ip, Np], < 0; zeros in the padding
  const float* skip = nullptr;  // [I]
  ConstFloatMatrix x, dt, z;    // [T, I]
  ConstFloatMatrix b, c;        // [T, N]
  // Planes [Ip, Np] fp32 of the base and of the tail.
  size_t base_offset = 0, tail_offset = 0;
  uint32_t fold_interval = 16;
  Operand y;  // [T, I], zeros up to Ip
};

// h = a h + √(1 - a²) σ(input gate) x,  log a = rate · σ(recurrent gate), a number of state a
// channel. A session's first token has the factor 1 instead of the root.
struct GatedScanCall {
  DeviceRows rows;
  DeviceSlots slots;
  uint32_t channels = 0;                           // I
  const float* rate = nullptr;                     // [I], <= 0
  ConstFloatMatrix x, input_gate, recurrent_gate;  // [T, I]
  size_t base_offset = 0, tail_offset = 0;         // planes [Ip] fp32 of the base and of the tail
  uint32_t fold_interval = 16;
  FloatMatrix h;  // [T, I]
};

// y_t = Σ_{l < window} taps_l ∘ x_{t-l} for each channel. Inputs are rounded to the rows' dtype
// first. The base keeps those before the chunk as a ring: of position p in row p mod R.
struct FilterCall {
  DeviceRows rows;
  DeviceSlots slots;
  uint32_t channels = 0;        // D
  uint32_t padded = 0;          // Dp
  uint32_t window = 0;          // N
  uint32_t ring_rows = 0;       // R >= N - 1, a multiple of C
  const float* taps = nullptr;  // [N, Dp]
  ConstFloatMatrix x;           // [T, D]
  FloatMatrix y;                // [T, D]
  size_t ring_offset = 0;       // base plane [R, Dp], the rows' dtype
  size_t tail_offset = 0;       // tail plane [C, Dp], the rows' dtype
  uint32_t fold_interval = 16;
};

// The most modes of a head that ModeScanCall takes, and Mp: a power of two.
inline constexpr size_t kMostModes = 256;
constexpr uint32_t PaddedModes(size_t modes) {
  uint32_t padded = 16;
  while (padded < modes) padded *= 2;
  return padded;
}

// For each pair of rows i, j of a head, with u = k[i] · v[j]:
//   x[i, j] = pole ∘ x[i, j] + u            complex
//   y[j] = Σ_i q[i] · (Re Σ_m weight_m x_m[i, j] + skip · u)
// Row i of head h is column h·hd + i of q, k and v, and row j is column j·Hs + h of y.
struct ModeScanCall {
  DeviceRows rows;
  DeviceSlots slots;
  uint32_t heads = 0;              // Hs
  uint32_t head_dim = 0;           // hd
  uint32_t padded_columns = 0;     // Dp
  uint32_t padded_modes = 0;       // Mp
  const float* poles = nullptr;    // [Hs, Mp, 2]: real and imaginary; zeros in the padding
  const float* weights = nullptr;  // [Hs, Mp, 2]: likewise
  const float* skip = nullptr;     // [Hs]
  ConstFloatMatrix q, k, v;        // [T, D]
  FloatMatrix partial = {};        // [T, D]: the sum over the first i; used where hd > 1
  // Planes [hd, Dp, Mp, 2] fp32 of the base and of the tail: i, then the column h·hd + j.
  size_t base_offset = 0, tail_offset = 0;
  uint32_t fold_interval = 16;
  Operand y;  // [T, D], zeros up to Dp
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_RUNNING_STATE_OPERATIONS_H_
