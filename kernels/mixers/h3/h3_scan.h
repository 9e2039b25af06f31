// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The inner loops of H3: one block of kBlock heads of one session over the tokens of a chunk piece,
// vector lanes over heads.
//
// Bits: the window's sum is one chain of fused multiply-adds, lags ascending; a mode is two chains
// of two; the output's real and imaginary parts are a chain each over the modes ascending. Nothing
// depends on how many tokens a call has.
//
// Letters: hd head width, N window, R ring rows, M modes.
//
// Threading: a pure function of its argument; two calls may run at once unless one writes what the
// other touches.
#ifndef RIVULET_KERNELS_MIXERS_H3_H3_SCAN_H_
#define RIVULET_KERNELS_MIXERS_H3_H3_SCAN_H_

#include <cstddef>

#include "kernels/base/tensor_view.h"

namespace rivulet {

struct H3Scan {
  size_t head_dim = 0;           // hd
  size_t window = 0;             // N
  size_t fold_interval = 0;      // C
  size_t ring_rows = 0;          // R >= N - 1
  size_t modes = 0;              // M
  size_t begin = 0;              // place of the first token in its chunk
  size_t ring_next = 0;          // ring row that comes after the chunk before this one
  const float* taps = nullptr;   // [hd, N, kBlock]
  const float* modal = nullptr;  // [M, 4, kBlock]: pole re, im, weight re, im
  const float* skip = nullptr;   // [kBlock]
  const float* ring = nullptr;   // [hd, R, kBlock]: keys before the chunk; null: zeros
  float* keys = nullptr;         // [hd, C, kBlock]: keys of the chunk; rows are added
  const float* from = nullptr;   // [hd, hd, M, 2, kBlock]: the modes before the first token
  float* to = nullptr;           // the modes after the last token; may be `from`
  // The last tokens may be forgotten: they change no modes, and leave rows. Only of a piece that
  // does not fold.
  size_t guesses = 0;
  float* scratch = nullptr;  // [M, 2, kBlock], with guesses
  // Rows of the chunk's tokens that may be forgotten, [hd, C, kBlock] each: k̄ and v.
  float* shifted_rows = nullptr;
  float* value_rows = nullptr;
  // Rows [done, begin) are replayed first: `from` is the state before them.
  size_t done = 0;
  // Head row i of these is `head_stride` floats after row 0; kBlock columns of it are used.
  ConstFloatMatrix q, k, v;  // [tokens, hd · head_stride]
  FloatMatrix y;             // the same
  size_t head_stride = 0;
};

void ScanHeads(const H3Scan& scan);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_H3_H3_SCAN_H_
