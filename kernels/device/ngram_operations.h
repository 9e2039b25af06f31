// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Embeddings of n-grams on a device (kernels/ops/ngram_embedding): the rows of a table that belong
// to a token and those before it, and the gate of what is made of them.
//
// Letters: T tokens, N the largest order of an n-gram, H heads of all orders, S streams, h =
// hidden.
#ifndef RIVULET_KERNELS_DEVICE_NGRAM_OPERATIONS_H_
#define RIVULET_KERNELS_DEVICE_NGRAM_OPERATIONS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/device/device_types.h"

namespace rivulet {

inline constexpr uint32_t kMostDeviceNgram = 8;

// y [T, H · width]: for each head the table's row that NgramHash has for the token's id and the
// N - 1 ids before it. Keeps the ids.
struct NgramRowsCall {
  DeviceRows rows;
  DeviceSlots slots;
  const uint32_t* ids = nullptr;          // [T]; UINT32_MAX: last_tokens[tail of the row]
  const uint32_t* last_tokens = nullptr;  // by tail slot
  uint32_t ngram = 0;                     // N, at most kMostDeviceNgram
  uint32_t heads = 0;                     // H, as many of each order
  // In 64-bit words: N multipliers, then a size and an offset of each head.
  const uint64_t* hash = nullptr;
  // Stands for ids before the session, and for those before itself.
  uint32_t end_of_text = 0;
  DeviceLinear table;  // row r is output r's weights; not in fp8
  // State: ids + 1, of N - 1 tokens before the border, the last one first, and since then.
  size_t before_offset = 0;  // base plane [N - 1], 32-bit words
  size_t tail_offset = 0;    // tail plane [C], 32-bit words
  Operand y;                 // zeros in the padding
};

// For each stream i, with rms norms of h numbers each:
//
//   g = norm(key_i) · norm(x_i) / √h      u_i = σ(sign(g) √max(|g|, 1e-6)) value
//   gated = u      normed_i = norm(u_i)
struct NgramGateCall {
  uint32_t streams = 0;                 // S
  ConstFloatMatrix keys;                // [T, S · h]
  ConstFloatMatrix value;               // [T, h]
  ConstFloatMatrix x;                   // [T, S · h]
  const float* key_weight = nullptr;    // [S · h], of the norms
  const float* query_weight = nullptr;  // [S · h]
  const float* weight = nullptr;        // [S · h], of the last norm
  float eps = 0;
  FloatMatrix gated, normed;  // [T, S · h]; normed may be the keys
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_NGRAM_OPERATIONS_H_
