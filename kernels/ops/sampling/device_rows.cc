// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/sampling/device_rows.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/check.h"
#include "kernels/ops/sampling/philox.h"

namespace rivulet {

static_assert(kMostTopLogits == kMaxTopLogprobs);

size_t EditWriter::Bound(const SamplingParams& params, const TokenHistory& history,
                         size_t forbidden) {
  size_t count = forbidden + params.logit_bias.size();
  if (params.NeedsSessionCounts() || params.NeedsTurnCounts()) count += history.recent.size();
  if (params.NeedsSessionCounts() && history.session != nullptr) {
    count += history.session->distinct();
  }
  if (params.NeedsTurnCounts() && history.turn != nullptr) count += history.turn->distinct();
  return count;
}

LogitEdit& EditWriter::Of(uint32_t token) {
  RIVULET_CHECK(token < place_.size(),
                "a token of the history or the bias is not in the vocabulary");
  uint32_t& place = place_[token];
  if (place >= count_ || edits_[place].token != token) {
    place = static_cast<uint32_t>(count_++);
    edits_[place] = {token, 0, 0.0f, 0.0f};
  }
  return edits_[place];
}

size_t EditWriter::Write(const SamplingParams& params, const TokenHistory& history,
                         std::span<const uint32_t> forbidden, LogitEdit* to) {
  edits_ = to;
  count_ = 0;
  const bool session = params.NeedsSessionCounts(), turn = params.NeedsTurnCounts();
  for (const uint32_t token : forbidden) {
    if (token < place_.size()) Of(token).marks |= LogitEdit::kForbidden;
  }
  if (session && history.session != nullptr) {
    history.session->ForEach(
        [&](uint32_t token, uint32_t) { Of(token).marks |= LogitEdit::kInSession; });
  }
  if (turn && history.turn != nullptr) {
    history.turn->ForEach([&](uint32_t token, uint32_t count) { Of(token).marks += count; });
  }
  for (const uint32_t token : history.recent) {
    if (session) Of(token).marks |= LogitEdit::kInSession;
    if (turn) ++Of(token).marks;
  }
  for (const LogitBias& bias : params.logit_bias) Of(bias.token).bias = bias.bias;
  return count_;
}

SampleRow DescribeDraw(const SamplingParams& params, const DrawPlace& place) {
  SampleRow row;
  row.samples = 1;
  row.random_bits = RandomBits(params.seed, place);
  row.inverse_temperature = InverseTemperature(params.temperature);
  row.top_k = params.top_k;
  row.top_p = params.top_p;
  row.min_p = params.min_p;
  row.repetition = params.repetition_penalty;
  row.frequency = params.frequency_penalty;
  row.presence = params.presence_penalty;
  return row;
}

Logprobs LogprobsFrom(const LogprobResult& result, uint32_t token, float logit, size_t n) {
  const float log_sum = result.max + std::log(result.sum);
  Logprobs logprobs{{token, logit - log_sum}, {}};
  for (size_t i = 0; i < n; ++i) {
    logprobs.top.push_back({result.tokens[i], result.logits[i] - log_sum});
  }
  return logprobs;
}

}  // namespace rivulet
