// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// From one row of logits to a token id. The steps, in this order (fields and ranges as in
// SamplingParams of inference.proto):
//
//   1. repetition_penalty p, for each token of the session: l > 0 ? l / p : l · p (CTRL)
//   2. frequency and presence penalty, for each token of this turn: l -= count · f + presence
//   3. logit_bias: l += bias
//      temperature 0 stops here: the largest l, ties to the lowest id
//   4. temperature: weight = e^{(l - max) / temperature}
//   5. top_k: the k best, ties to the lower id
//   6. top_p: of those, the fewest best whose weights reach top_p of their sum
//   7. min_p: of those, the tokens with at least min_p times the weight of the best
//   8. one draw in proportion to weight
//
// Weights are fixed-point numbers, 2^40 for the best token, so that sums are exact in any order and
// a draw depends on nothing but its inputs. A token below 2^-40 of the best (about 1e-12) is never
// drawn.
//
// The random number depends on (seed, index, position) alone: not on the batch row, the step or the
// thread. It deliberately keeps no state, and knows neither stop rules nor text.
//
// Threading: pure functions; a scratch may be used by one call at a time.
#ifndef RIVULET_KERNELS_OPS_SAMPLING_SAMPLING_H_
#define RIVULET_KERNELS_OPS_SAMPLING_SAMPLING_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/ops/sampling/token_counts.h"

namespace rivulet {

inline constexpr size_t kMaxTopLogprobs = 20;

struct LogitBias {
  uint32_t token = 0;
  float bias = 0.0f;
};

struct SamplingParams {
  float temperature = 1.0f;         // >= 0; 0 is greedy
  uint32_t top_k = 0;               // 0 is off
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1)
  float repetition_penalty = 1.0f;  // > 0; over all tokens of the session
  float frequency_penalty = 0.0f;   // [-2, 2]; over the tokens of this turn
  float presence_penalty = 0.0f;    // [-2, 2]; over the tokens of this turn
  uint64_t seed = 0;
  std::vector<LogitBias> logit_bias;  // each token at most once; bias in [-100, 100]

  bool NeedsSessionCounts() const { return repetition_penalty != 1.0f; }
  bool NeedsTurnCounts() const { return frequency_penalty != 0.0f || presence_penalty != 0.0f; }
};

// INVALID_ARGUMENT, naming the field, its value and the range, if a field is outside of its range
// (NaN is) or a biased token is not below `vocab`. Sample expects parameters that passed.
absl::Status CheckSamplingParams(const SamplingParams& params, size_t vocab);

// The tokens before the one that is drawn. Null is an empty history; only what the parameters need
// is read. Tokens must be below the vocabulary's size.
struct TokenHistory {
  const TokenCounts* session = nullptr;  // prompt and output of every turn
  const TokenCounts* turn = nullptr;     // the output of this turn
  // Output of this turn that neither counts yet. Meant for a few tokens: each costs a search.
  std::span<const uint32_t> recent = {};
};

// Which random number: `index` is the completion's among the n of one prompt, `position` the
// absolute position of the token that is drawn.
struct DrawPlace {
  uint32_t index = 0;
  uint64_t position = 0;
};

// Memory that calls use again. Its content means nothing between calls.
struct SamplingScratch {
  std::vector<float> logits;
  std::vector<float> weights;
  std::vector<uint16_t> buckets;
  std::vector<uint32_t> tokens;
};

// Draws one token from logits [vocab], fp32. Fails with INTERNAL, naming token and value, if a
// logit is infinite or NaN.
absl::StatusOr<uint32_t> Sample(std::span<const float> logits, const SamplingParams& params,
                                const TokenHistory& history, const DrawPlace& place,
                                SamplingScratch& scratch);

// What Sample draws with, for those who draw elsewhere (device_rows.h): 64 random bits; the factor
// of the logits, 0 for greedy; the error of a logit that is not finite.
uint64_t RandomBits(uint64_t seed, const DrawPlace& place);
float InverseTemperature(float temperature);
absl::Status LogitNotFinite(size_t token, size_t vocab, float logit);

struct TokenLogprob {
  uint32_t token = 0;
  float logprob = 0.0f;
};

struct Logprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // best first, ties to the lower id
};

// Natural logarithms of the probabilities that the raw logits [vocab] give, before penalties and
// temperature: of `chosen`, and of the `n` <= kMaxTopLogprobs best. Fails as Sample does.
absl::StatusOr<Logprobs> ChosenAndTopLogprobs(std::span<const float> logits, uint32_t chosen,
                                              size_t n);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_SAMPLING_SAMPLING_H_
