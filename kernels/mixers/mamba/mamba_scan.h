// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The inner loop of Mamba's selective scan: one block of kBlock channels of one session over
// consecutive tokens, vector lanes over channels.
//
// Bits: y is one chain of fused multiply-adds over n ascending, then the skip, then the gate; a
// state is one exp, one product and one fused multiply-add a token. Nothing depends on how many
// tokens a call has.
//
// Threading: a pure function of its argument; two calls may run at once unless one writes what the
// other touches.
#ifndef RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_SCAN_H_
#define RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_SCAN_H_

#include <cstddef>

#include "kernels/base/tensor_view.h"

namespace rivulet {

// What tokens that may be forgotten leave, so that their states can be made again: rows of a chunk.
struct MambaRows {
  float* x = nullptr;        // [C, kBlock]
  float* dt = nullptr;       // [C, kBlock]
  const float* b = nullptr;  // [C, N]: written already
};

struct MambaScan {
  size_t state_size = 0;        // N
  size_t channels = 0;          // 1 to kBlock; the views below have as many columns
  const float* a = nullptr;     // [N, kBlock], < 0; zeros beyond `channels`
  const float* skip = nullptr;  // [kBlock]: D
  const float* from = nullptr;  // [N, kBlock]: the state before the first token
  float* to = nullptr;          // [N, kBlock]: the state after the last one; may be `from`
  ConstFloatMatrix x, dt, z;    // [tokens, channels]; Δ = softplus(dt)
  ConstFloatMatrix b, c;        // [tokens, N]
  FloatMatrix y;                // [tokens, channels]
  // The last tokens may be forgotten: they change no state, and leave rows. Only of a piece that
  // does not fold.
  size_t guesses = 0;
  float* scratch = nullptr;  // [N, kBlock], with guesses
  // Rows [done, begin) of the chunk are replayed first: `from` is the state before them, and the
  // first token's place is `begin`.
  MambaRows rows = {};
  size_t done = 0, begin = 0;
};

void ScanChannels(const MambaScan& scan);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_SCAN_H_
