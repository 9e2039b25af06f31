// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Whether two answers have the same log-probabilities, bit for bit, for tests.
#ifndef RIVULET_SERVER_ENGINE_SAME_LOGPROBS_H_
#define RIVULET_SERVER_ENGINE_SAME_LOGPROBS_H_

#include <algorithm>
#include <vector>

#include "kernels/ops/sampling/sampling.h"

namespace rivulet {

inline bool Same(const Logprobs& a, const Logprobs& b) {
  const auto same = [](const TokenLogprob& x, const TokenLogprob& y) {
    return x.token == y.token && x.logprob == y.logprob;
  };
  return same(a.chosen, b.chosen) &&
         std::equal(a.top.begin(), a.top.end(), b.top.begin(), b.top.end(), same);
}

inline bool Same(const std::vector<Logprobs>& a, const std::vector<Logprobs>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Logprobs& x, const Logprobs& y) { return Same(x, y); });
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_SAME_LOGPROBS_H_
