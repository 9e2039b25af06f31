// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Embeddings of a token's n-grams, added to the residual streams in front of a layer (Qwen4-Exp;
// docs/mixers.md#embeddings-of-n-grams). With e the hashed rows (ngram_hash.h) side by side and
// each norm of a stream an RMSNorm with weights of its own:
//
//   k_i = norm_k(K_i e)   v = V e   g_i = k_i · norm_q(s_i) / √hidden
//   u_i = σ(sign(g_i) √max(|g_i|, 1e-6)) v
//   s_i += u_i + silu(conv(norm_c(u_i)))
//
// conv is depthwise with taps `dilation` tokens apart. An id that lies before the session's last
// end-of-text id counts as that one.
//
// State: the last ids and the last inputs of the convolution, as short_convolution.h keeps them.
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_OPS_NGRAM_EMBEDDING_NGRAM_EMBEDDING_H_
#define RIVULET_KERNELS_OPS_NGRAM_EMBEDDING_NGRAM_EMBEDDING_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/device/device_step.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/ops/ngram_embedding/ngram_hash.h"
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/layer_step.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

struct NgramForm {
  NgramHashConfig hash = {};
  size_t streams = 0;
  size_t row = 0;       // numbers of a row of the table
  size_t taps = 0;      // of the convolution
  size_t dilation = 0;  // tokens between them
  uint32_t end_of_text = 0;
  float norm_eps = 0;

  size_t inputs() const { return (hash.ngram - 1) * hash.heads * row; }  // of K and V
  size_t window() const { return (taps - 1) * dilation + 1; }
};

// All [streams · hidden]; weights of norms are complete (1 + w).
struct NgramParts {
  Linear table;  // [rows, row]: row r is output r's weights
  Linear keys;   // K and V as one map, [streams · hidden + hidden, inputs]
  AlignedBuffer<float> key_norm, query_norm, convolution_norm;
  AlignedBuffer<float> taps;  // [streams · hidden, taps]
};

class NgramEmbedding {
 public:
  NgramEmbedding(const NgramForm& form, NgramParts parts, const StateLayout& empty);

  const StateLayout& state_layout() const { return layout_; }

  // streams [T, streams · hidden] of tokens ids [T]; advances the state of the step's segments.
  void Apply(const LayerStep& step, std::span<const uint32_t> ids, FloatMatrix streams) const;

  // The same on the device that the maps are packed for. UINT32_MAX among the ids [T] stands for
  // last_tokens[tail of the row].
  void Enqueue(const DeviceStep& step, const uint32_t* ids, const uint32_t* last_tokens,
               FloatMatrix streams) const;

 private:
  // One that keeps ids on the CPU, in fp32; none on a device, whose rows may be bf16.
  static ShortConvolution IdsOnCpu(const NgramForm& form, StateLayout& layout);
  void AddDevicePlanes();
  Operand EnqueueRows(const DeviceStep& step, const uint32_t* ids,
                      const uint32_t* last_tokens) const;
  FloatMatrix Rows(const LayerStep& step, std::span<const uint32_t> ids) const;
  void Gate(ConstFloatMatrix query, ConstFloatMatrix key, ConstFloatMatrix value, FloatMatrix y,
            ThreadPool& pool) const;
  void Norm(ConstFloatMatrix x, const AlignedBuffer<float>& weight, FloatMatrix y,
            ThreadPool& pool) const;

  StateLayout layout_;
  NgramForm form_;
  NgramHash hash_;
  NgramParts parts_;
  size_t hidden_;
  ShortConvolution before_;  // channel i gives the id of i + 1 tokens ago, plus 1; 0: none
  ShortConvolution convolution_;
  std::vector<uint64_t> hash_numbers_;          // on a device
  size_t device_before_ = 0, device_tail_ = 0;  // offsets of its ids there
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_NGRAM_EMBEDDING_NGRAM_EMBEDDING_H_
