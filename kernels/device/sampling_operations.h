// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Sampling on a device: from a row of logits to a token, and to what log-probabilities are made of.
// The steps, their order and every number are those of kernels/ops/sampling/sampling.h: for equal
// logits the token is the one that the host would draw. That is possible because weights are
// fixed-point numbers, whose sums are exact in any order, and because the exponential is written
// once more here, operation for operation as Highway's with fused multiply-add.
//
// Plain values; pointers are to device memory, but for results, which may be anywhere that the
// device can write. kernels/ops/sampling/device_rows.h fills them in.
#ifndef RIVULET_KERNELS_DEVICE_SAMPLING_OPERATIONS_H_
#define RIVULET_KERNELS_DEVICE_SAMPLING_OPERATIONS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/base/tensor_view.h"

#ifdef __CUDACC__
#define RIVULET_HOST_DEVICE __host__ __device__
#else
#define RIVULET_HOST_DEVICE
#endif

namespace rivulet {

// The tokens with their logits that a row gives back at most (kMaxTopLogprobs).
inline constexpr uint32_t kMostTopLogits = 20;
inline constexpr uint32_t kNoToken = UINT32_MAX;
inline constexpr uint32_t kNoMask = UINT32_MAX;
// A mask says which tokens may come: bit i % 64 of word i / 64 for token i. The logits of others
// become kForbiddenLogit before the edits, so that an edit may bring one back as on the CPU.
inline constexpr uint32_t kMaskBits = 64;
inline constexpr size_t MaskWords(size_t vocab) { return (vocab + kMaskBits - 1) / kMaskBits; }

// What changes the logit of one token before the draw. A row has one for each token that changes.
struct LogitEdit {
  static constexpr uint32_t kForbidden = uint32_t{1} << 31;
  static constexpr uint32_t kInSession = uint32_t{1} << 30;
  static constexpr uint32_t kTurnCount = kInSession - 1;  // how often it is in this turn's output

  uint32_t token;
  uint32_t marks;
  float bias;
  float raw;  // written by the device: the logit before the change
};

// A row of logits: what is drawn from it, and how.
struct SampleRow {
  uint64_t random_bits = 0;
  uint32_t first_edit = 0, edits = 0;  // of SampleCall::edits
  uint32_t slot = kNoToken;            // of last_tokens, where the token goes; kNoToken: nowhere
  uint32_t samples = 0;                // 0: draw nothing
  // The token in last_tokens[slot] precedes the draw and is not yet counted by the edits.
  uint32_t counts_last = 0;
  uint32_t top_logits = kNoToken;  // how many of the best to give back; kNoToken: no logits at all
  uint32_t scored = kNoToken;      // a token whose logit is wanted besides
  uint32_t mask = kNoMask;         // first word of SampleCall::masks; kNoMask: any token may come
  float inverse_temperature = 0;   // 0: greedy
  uint32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition = 1, frequency = 0, presence = 0;
};

struct SampleResult {
  uint32_t token;
  uint32_t broken;  // the first token whose logit is not finite, or kNoToken
  float broken_logit;
};

// Of the logits as they were before any change.
struct LogprobResult {
  float max;
  float sum;  // of e^{logit - max}: 16 chains of every 16th token, then the tree of a CPU's block
  float sampled, scored;  // logits of the token that was drawn and of SampleRow::scored
  uint32_t tokens[kMostTopLogits];
  float logits[kMostTopLogits];  // best first, ties to the lower id
};

struct SampleCall {
  FloatMatrix logits;               // [count, vocab]; rows are changed
  const SampleRow* rows = nullptr;  // [count]
  LogitEdit* edits = nullptr;
  const uint64_t* masks = nullptr;  // each of MaskWords(vocab); not read if no row has one
  uint32_t count = 0;
  uint32_t* last_tokens = nullptr;
  // In the device's memory, or pinned memory of the host.
  SampleResult* results = nullptr;    // [count]; of a row with nothing to do: not written
  LogprobResult* logprobs = nullptr;  // [count]
};

namespace sampling {

inline constexpr float kForbiddenLogit = -1e30f;  // finite, and lower than any bias brings back
inline constexpr float kLargest = 3.402823466e38f;
inline constexpr float kBestWeight = 1099511627776.0f;  // 2^40

RIVULET_HOST_DEVICE inline float BitsToFloat(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}
RIVULET_HOST_DEVICE inline uint32_t FloatToBits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

RIVULET_HOST_DEVICE inline bool MayCome(const uint64_t* mask, uint32_t token) {
  return (mask[token / kMaskBits] >> (token % kMaskBits) & 1) != 0;
}

// Penalties may leave the range of fp32.
RIVULET_HOST_DEVICE inline float Bounded(float logit) {
  return logit < -kLargest ? -kLargest : logit > kLargest ? kLargest : logit;
}

// The logit after penalties and bias.
RIVULET_HOST_DEVICE inline float Edited(float logit, const LogitEdit& edit, const SampleRow& row) {
  float l = (edit.marks & LogitEdit::kForbidden) != 0 ? kForbiddenLogit : logit;
  if ((edit.marks & LogitEdit::kInSession) != 0) {
    l = Bounded(l > 0 ? l / row.repetition : l * row.repetition);
  }
  const uint32_t count = edit.marks & LogitEdit::kTurnCount;
  if (count != 0) l = Bounded(l - (static_cast<float>(count) * row.frequency + row.presence));
  return Bounded(l + edit.bias);
}

// e^x for x <= 0 as Highway computes it on a CPU with fused multiply-add.
RIVULET_HOST_DEVICE inline float ExpOfNegative(float x) {
  if (!(x >= -104.0f)) return 0.0f;
  const float half = (FloatToBits(x) >> 31) != 0 ? -0.5f : 0.5f;
  const auto q = static_cast<int32_t>(fmaf(x, 1.442695040888963407359924681f, half));
  const auto qf = static_cast<float>(q);
  float r = fmaf(qf, -0.693145751953125f, x);
  r = fmaf(qf, -1.428606765330187045e-6f, r);
  const float r2 = r * r, r4 = r2 * r2;
  const float high = fmaf(0.000198527617612853646278381f, r, 0.00139304355252534151077271f);
  const float middle = fmaf(0.00833336077630519866943359f, r, 0.0416664853692054748535156f);
  const float low = fmaf(0.166666671633720397949219f, r, 0.5f);
  const float series = fmaf(r4, high, fmaf(r2, middle, low));
  const float y = fmaf(series, r2, r) + 1.0f;
  const int32_t first = q >> 1, second = q - first;
  const float a = BitsToFloat(static_cast<uint32_t>(first + 127) << 23);
  const float b = BitsToFloat(static_cast<uint32_t>(second + 127) << 23);
  return y * a * b;
}

RIVULET_HOST_DEVICE inline uint64_t FixedPoint(float weight) {
  return static_cast<uint64_t>(weight * kBestWeight);
}

// Rises along the ranking: by falling logit, then by id.
RIVULET_HOST_DEVICE inline uint64_t RankKey(float logit, uint32_t token) {
  const uint32_t bits = FloatToBits(logit + 0.0f);  // -0 is 0
  const uint32_t rising = (bits >> 31) != 0 ? ~bits : bits | uint32_t{1} << 31;
  return uint64_t{~rising} << 32 | token;
}

}  // namespace sampling
}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_SAMPLING_OPERATIONS_H_
