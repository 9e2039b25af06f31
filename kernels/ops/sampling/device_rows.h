// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a device is told of a draw (kernels/device/sampling_operations.h), from the parameters and
// the history that Sample takes, and log-probabilities from what it gives back.
//
// Threading: EditWriter is for one thread; the functions are pure.
#ifndef RIVULET_KERNELS_OPS_SAMPLING_DEVICE_ROWS_H_
#define RIVULET_KERNELS_OPS_SAMPLING_DEVICE_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device/sampling_operations.h"
#include "kernels/ops/sampling/sampling.h"

namespace rivulet {

// Which tokens' logits change, and how: one LogitEdit for each.
class EditWriter {
 public:
  explicit EditWriter(size_t vocab) : place_(vocab) {}

  // At least as many as Write writes.
  static size_t Bound(const SamplingParams& params, const TokenHistory& history, size_t forbidden);

  // Writes the edits to `to`, which has room for Bound; returns how many. `forbidden` ids may be
  // outside of the vocabulary, and then do nothing.
  size_t Write(const SamplingParams& params, const TokenHistory& history,
               std::span<const uint32_t> forbidden, LogitEdit* to);

 private:
  LogitEdit& Of(uint32_t token);

  std::vector<uint32_t> place_;  // [vocab]: of the token's edit, if that is the token's
  LogitEdit* edits_ = nullptr;
  size_t count_ = 0;
};

// Everything but the edits, the slot and the logits that are wanted.
SampleRow DescribeDraw(const SamplingParams& params, const DrawPlace& place);

// As ChosenAndTopLogprobs gives them: of a token with the logit `logit`, and of the `n` best.
Logprobs LogprobsFrom(const LogprobResult& result, uint32_t token, float logit, size_t n);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_SAMPLING_DEVICE_ROWS_H_
