// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The arguments of softmax attention on a device (Device::Attend): keys and values of the step's
// tokens are appended to the sessions' pages, and each token reads those that it sees. Plain
// values; all pointers are to device memory.
//
// Letters: T tokens, H query heads, Hkv kv heads, D numbers of a head, Dp rounded up to 16. A page
// holds a chunk of 16 tokens, keys [Hkv, 16, Dp] and values [Hkv, 16, Dp]; the tail holds the rows
// of the open chunk in the same form. Numbers are rounded to the type of the pages before any token
// reads them.
//
// What a token sees is read in spans at absolute borders. Each leaves a partial: the largest score
// m, l = Σ e^{score - m}, and o = Σ e^{score - m} v. Partials are joined in ascending order. The
// length of a span and so the order of all operations depend only on the position and the window.
#ifndef RIVULET_KERNELS_DEVICE_SOFTMAX_OPERATIONS_H_
#define RIVULET_KERNELS_DEVICE_SOFTMAX_OPERATIONS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/device/device_types.h"

namespace rivulet {

// The most spans that a token sees.
inline constexpr uint32_t kMostSpans = 32;
inline constexpr uint32_t kLeastSpanBits = 8;
// Partials are kept for this many segments at a time.
inline constexpr uint32_t kSpanSegments = 256;
// Bytes: lines of L2, which are dropped when partials have been joined.
inline constexpr size_t kPartialAlignment = 128;
// The widest head.
inline constexpr uint32_t kMostAttendedWidth = 256;
// The same where values are the keys themselves.
inline constexpr uint32_t kMostSharedWidth = 576;

// The first token that one at `position` sees; window 0: all. The first `unseen` tokens of a
// session are seen by no token after them.
constexpr uint64_t FirstSeen(uint64_t position, uint64_t window, uint64_t unseen = 0) {
  const uint64_t in_window = window == 0 || position < window ? 0 : position + 1 - window;
  const uint64_t visible = position < unseen ? position : unseen;
  return in_window < visible ? visible : in_window;
}

// The tokens of a span for a token at `position` are 2 to the power of this, chosen such that it
// sees kMostSpans spans at most. Changes at multiples of 2^kLeastSpanBits · kMostSpans alone.
constexpr uint32_t SpanBits(uint64_t position, uint64_t window) {
  uint32_t bits = kLeastSpanBits;
  while ((position >> bits) >= kMostSpans &&
         (window == 0 || ((window - 1) >> bits) + 2 > kMostSpans)) {
    ++bits;
  }
  return bits;
}

struct AttendCall {
  DeviceRows rows;
  DeviceSlots slots;
  DevicePages pages;
  uint32_t heads = 0;     // H
  uint32_t kv_heads = 0;  // Hkv, divides H
  uint32_t padded = 0;    // Dp
  uint64_t window = 0;    // tokens that a token sees, its own included; 0: all
  uint64_t unseen = 0;    // see FirstSeen
  // Of chosen pools (pool_operations.h), without a window or unseen tokens: the tokens of a pool,
  // and for each token how many pools it sees and their numbers ascending, [T, 1 + K]. It also sees
  // the tokens from the last full pool on. 0: it sees all tokens.
  uint32_t pool = 0;
  ConstFloatMatrix chosen = {};
  bool bf16_pages = false;
  bool values_are_keys = false;  // then v is not read, and the offsets of values are those of keys
  const float* q = nullptr;      // [T, H · Dp], scaled; zeros in the padding, as in k and v
  uint32_t q_stride = 0;
  const float* k = nullptr;  // [T, Hkv · Dp]
  uint32_t k_stride = 0;
  const float* v = nullptr;  // [T, Hkv · Dp]
  uint32_t v_stride = 0;
  size_t tail_key_offset = 0, tail_value_offset = 0;
  size_t page_key_offset = 0, page_value_offset = 0;
  float* partials = nullptr;  // [AttendPartialFloats], at a multiple of kPartialAlignment
  // [T, H · Dp], rows at multiples of 16 bytes. Null data: keys and values are appended, no more.
  FloatMatrix out = {};
};

// Partials are kept for this many segments.
constexpr uint32_t KeptSegments(uint32_t segments) {
  return segments < kSpanSegments ? segments : kSpanSegments;
}
// o [kept, H, kMostSpans, Dp], then m and l [kept, H, kMostSpans, 2], then how many spans' partials
// are there [kept, H].
constexpr size_t AttendPartialFloats(uint32_t segments, uint32_t heads, uint32_t padded) {
  return size_t{KeptSegments(segments)} * heads * (kMostSpans * (padded + 2) + 1);
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_SOFTMAX_OPERATIONS_H_
