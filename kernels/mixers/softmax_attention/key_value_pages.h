// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Where the keys and values of softmax attention lie on the CPU: the tail and the pages of C tokens
// (README.md). Appends rows and finds them again; it attends to nothing.
//
// Threading: constant after construction; two appends may run at once for different heads or
// segments.
#ifndef RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_KEY_VALUE_PAGES_H_
#define RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_KEY_VALUE_PAGES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

struct SoftmaxAttentionShape {
  size_t heads = 0;                     // H
  size_t kv_heads = 0;                  // Hkv, divides H
  size_t head_dim = 0;                  // D
  uint64_t window = 0;                  // tokens that a query sees, its own included; 0: all
  DType state_dtype = DType::kFloat32;  // of pages and tail
  // Numbers of a value, where values are the first numbers of keys; 0: they have rows of their own.
  // On a device a value is the whole key.
  size_t value_dim = 0;
  // So many tokens at the beginning of a session are seen by none after them. A token among them
  // sees itself alone. On the CPU only.
  uint64_t unseen = 0;

  size_t group() const { return heads / kv_heads; }
  size_t padded() const { return PaddedColumns(head_dim); }
  bool values_are_keys() const { return value_dim != 0; }
  size_t values() const { return value_dim == 0 ? head_dim : value_dim; }  // E
  size_t padded_values() const { return PaddedColumns(values()); }
};

// The pools that each token sees (pool_selection.h): pool p is tokens p · size to (p + 1) · size of
// the session. A token also sees the tokens behind the last full pool.
struct ChosenPools {
  size_t size = 0;  // of a pool, 16 or a divisor of it; 0: a token sees all tokens before it
  // [T, 1 + the most pools]: how many, and their numbers ascending.
  ConstFloatMatrix rows = {};
};

// q [T, H*Dp], k [T, Hkv*Dp], v [T, Hkv*Ep], fp32, zeros in the padding of each head.
struct SoftmaxAttentionInput {
  ConstFloatMatrix q, k, v;
  ChosenPools chosen = {};  // without window and unseen tokens
};

// Offsets of the planes, and C.
struct KeyValuePlanes {
  size_t fold_interval = 0;
  size_t tail_k = 0, tail_v = 0, page_k = 0, page_v = 0;
};

class KeyValuePages {
 public:
  // Where a head's keys [D, C] and values [C, Ep] of one page, or of the tail, lie.
  struct Place {
    std::byte* keys;
    std::byte* values;
  };

  KeyValuePages(const SoftmaxAttentionShape& shape, const KeyValuePlanes& planes,
                const LayerState& state)
      : shape_(shape), planes_(planes), state_(state) {}

  // The rows of a chunk's end go straight into its page, after those that wait in the tail.
  void Append(const Segment& segment, size_t head, const SoftmaxAttentionInput& input) const;

  // Of the chunk number `page`, after the segment was appended.
  Place Find(const Segment& segment, uint64_t page, size_t head) const {
    const uint64_t full = (segment.position + segment.tokens) / planes_.fold_interval;
    return page < full ? Page(segment, page, head) : Tail(segment, head);
  }

 private:
  // One head's keys and values: what one page or tail holds of them.
  size_t key_bytes() const { return plane_bytes(shape_.head_dim); }
  size_t value_bytes() const { return plane_bytes(shape_.padded_values()); }
  size_t plane_bytes(size_t width) const {
    return width * planes_.fold_interval * DTypeSize(shape_.state_dtype);
  }
  Place Tail(const Segment& segment, size_t head) const {
    return {state_.Tail<std::byte>(segment.tail, planes_.tail_k) + head * key_bytes(),
            state_.Tail<std::byte>(segment.tail, planes_.tail_v) + head * value_bytes()};
  }
  Place Page(const Segment& segment, uint64_t page, size_t head) const {
    const uint32_t slot = segment.pages[state_.page_kind].Appended(page);
    return {state_.Page<std::byte>(slot, planes_.page_k) + head * key_bytes(),
            state_.Page<std::byte>(slot, planes_.page_v) + head * value_bytes()};
  }
  void AppendPiece(const ChunkPiece& piece, size_t head, const SoftmaxAttentionInput& input,
                   const Place& place) const;

  const SoftmaxAttentionShape& shape_;
  const KeyValuePlanes& planes_;
  const LayerState& state_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_KEY_VALUE_PAGES_H_
