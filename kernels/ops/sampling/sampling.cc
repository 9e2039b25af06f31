// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/sampling/sampling.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/sampling/logit_scan.h"
#include "kernels/ops/sampling/philox.h"

namespace rivulet {
namespace {

// --- steps 1 to 3: penalties and bias -----------------------------------------------------------

bool ChangesLogits(const SamplingParams& params, const TokenHistory& history) {
  const bool recent = !history.recent.empty();
  const bool session = recent || (history.session != nullptr && !history.session->empty());
  const bool turn = recent || (history.turn != nullptr && !history.turn->empty());
  return (session && params.NeedsSessionCounts()) || (turn && params.NeedsTurnCounts()) ||
         !params.logit_bias.empty();
}

// Penalties may leave the range of fp32; the largest float is as good as infinity.
float Bounded(float logit) {
  constexpr float kMax = std::numeric_limits<float>::max();
  return std::clamp(logit, -kMax, kMax);
}

uint32_t CountIn(std::span<const uint32_t> tokens, uint32_t token) {
  return static_cast<uint32_t>(std::count(tokens.begin(), tokens.end(), token));
}

// visit(token, count) for each token of `counted` and `recent` together.
template <typename Visit>
void ForEachToken(const TokenCounts* counted, std::span<const uint32_t> recent, Visit&& visit) {
  if (counted != nullptr) {
    counted->ForEach(
        [&](uint32_t token, uint32_t count) { visit(token, count + CountIn(recent, token)); });
  }
  for (size_t i = 0; i < recent.size(); ++i) {
    const bool visited = CountIn(recent.first(i), recent[i]) > 0 ||
                         (counted != nullptr && counted->count(recent[i]) > 0);
    if (!visited) visit(recent[i], CountIn(recent, recent[i]));
  }
}

void AdjustLogits(const SamplingParams& params, const TokenHistory& history,
                  std::span<float> logits) {
  const auto change = [&](uint32_t token, auto&& f) {
    RIVULET_CHECK(token < logits.size(),
                  "a token of the history or the bias is not in the vocabulary");
    logits[token] = Bounded(f(logits[token]));
  };
  if (params.NeedsSessionCounts()) {
    const float penalty = params.repetition_penalty;
    ForEachToken(history.session, history.recent, [&](uint32_t token, uint32_t) {
      change(token, [=](float l) { return l > 0 ? l / penalty : l * penalty; });
    });
  }
  if (params.NeedsTurnCounts()) {
    ForEachToken(history.turn, history.recent, [&](uint32_t token, uint32_t count) {
      const float penalty =
          static_cast<float>(count) * params.frequency_penalty + params.presence_penalty;
      change(token, [=](float l) { return l - penalty; });
    });
  }
  for (const LogitBias& bias : params.logit_bias) {
    change(bias.token, [&](float l) { return l + bias.bias; });
  }
}

// --- steps 4 to 7: which tokens may be drawn ----------------------------------------------------

constexpr float kBestWeight = 0x1p40f;

uint64_t FixedPoint(float weight) { return static_cast<uint64_t>(weight * kBestWeight); }

// A row whose tokens have weights. Tokens rank by logit, falling, then by id.
struct WeightedRow {
  std::span<const float> logits;
  std::span<const float> weights;  // (0, 1], 1 for the best

  uint64_t weight(uint32_t token) const { return FixedPoint(weights[token]); }
  bool Before(uint32_t a, uint32_t b) const {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  }
};

// The first tokens of the ranking, up to and including `last`.
struct Prefix {
  uint32_t last = 0;
  uint64_t mass = 0;  // sum of the weights
};

// Finds prefixes of the ranking without sorting the row: tokens go to buckets of falling weight,
// and only the one bucket in which a prefix ends is sorted. Tokens of weight zero are left out.
class Ranking {
 public:
  Ranking(const WeightedRow& row, float max, float inverse_temperature, SamplingScratch& scratch)
      : row_(row), buckets_(scratch.buckets), tokens_(scratch.tokens) {
    buckets_.resize(row.logits.size());
    for (uint32_t i = 0; i < row.logits.size(); ++i) {
      // Falls with the logit, so that buckets follow the ranking.
      const float depth = (max - row.logits[i]) * inverse_temperature * kBucketsPerUnit;
      buckets_[i] = static_cast<uint16_t>(std::min(depth, kBuckets - 1.0f));
      const uint64_t weight = row.weight(i);
      counts_[buckets_[i]] += weight != 0;
      masses_[buckets_[i]] += weight;
    }
  }

  uint64_t mass() const { return std::accumulate(masses_.begin(), masses_.end(), uint64_t{0}); }
  // The `count` best tokens, or all if there are no more.
  Prefix OfCount(size_t count) {
    return Walk([count](size_t tokens, uint64_t) { return tokens >= count; });
  }
  // The fewest best tokens that weigh `mass` together, or all.
  Prefix OfMass(uint64_t mass) {
    return Walk([mass](size_t, uint64_t sum) { return sum >= mass; });
  }

 private:
  static constexpr size_t kBuckets = 512;
  static constexpr float kBucketsPerUnit = 16.0f;  // e^-32 is below the smallest weight

  template <typename Enough>  // bool(size_t tokens, uint64_t mass), false for nothing
  Prefix Walk(Enough&& enough) {
    size_t tokens = 0;
    uint64_t mass = 0;
    size_t bucket = 0;
    size_t last_used = 0;
    for (; bucket < kBuckets; ++bucket) {
      if (counts_[bucket] == 0) continue;
      last_used = bucket;
      if (enough(tokens + counts_[bucket], mass + masses_[bucket])) break;
      tokens += counts_[bucket];
      mass += masses_[bucket];
    }
    if (bucket == kBuckets) {  // everything is wanted
      SortBucket(last_used);
      return {tokens_.back(), mass};
    }
    SortBucket(bucket);
    for (uint32_t token : tokens_) {
      mass += row_.weight(token);
      if (enough(++tokens, mass)) return {token, mass};
    }
    return {tokens_.back(), mass};
  }

  void SortBucket(size_t bucket) {
    tokens_.clear();
    for (uint32_t i = 0; i < buckets_.size(); ++i) {
      if (buckets_[i] == bucket && row_.weight(i) != 0) tokens_.push_back(i);
    }
    std::sort(tokens_.begin(), tokens_.end(),
              [this](uint32_t a, uint32_t b) { return row_.Before(a, b); });
  }

  const WeightedRow& row_;
  std::vector<uint16_t>& buckets_;
  std::vector<uint32_t>& tokens_;
  std::array<uint32_t, kBuckets> counts_ = {};
  std::array<uint64_t, kBuckets> masses_ = {};
};

// The last token of the ranking that top_k and top_p keep.
uint32_t LastKept(Ranking& ranking, const SamplingParams& params) {
  Prefix best{0, ranking.mass()};
  if (params.top_k != 0) best = ranking.OfCount(params.top_k);
  if (params.top_p == 1.0f) return best.last;
  const double mass = std::ceil(static_cast<double>(best.mass) * params.top_p);
  return ranking.OfMass(static_cast<uint64_t>(mass)).last;
}

// The tokens that may be drawn, ids ascending, in scratch.tokens.
void CollectKept(const WeightedRow& row, const SamplingParams& params, float max,
                 float inverse_temperature, SamplingScratch& scratch) {
  const bool ranked = params.top_k != 0 || params.top_p != 1.0f;
  uint32_t last = 0;
  if (ranked) {
    Ranking ranking(row, max, inverse_temperature, scratch);
    last = LastKept(ranking, params);
  }
  scratch.tokens.clear();
  for (uint32_t i = 0; i < row.logits.size(); ++i) {
    if (row.weights[i] < params.min_p || (ranked && row.Before(last, i))) continue;
    scratch.tokens.push_back(i);
  }
}

// --- step 8: the draw ---------------------------------------------------------------------------

uint32_t Draw(const WeightedRow& row, std::span<const uint32_t> kept, uint64_t random_bits) {
  uint64_t total = 0;
  for (uint32_t token : kept) total += row.weight(token);
  RIVULET_CHECK(total != 0, "no token may be drawn");
  // Uniform in [0, total): the upper half of the 128-bit product.
  auto place = static_cast<uint64_t>(static_cast<unsigned __int128>(random_bits) * total >> 64);
  for (uint32_t token : kept) {
    const uint64_t weight = row.weight(token);
    if (place < weight) return token;
    place -= weight;
  }
  return kept.back();
}

absl::Status NotFinite(std::span<const float> logits) {
  size_t token = 0;
  while (std::isfinite(logits[token])) ++token;
  return LogitNotFinite(token, logits.size(), logits[token]);
}

}  // namespace

uint64_t RandomBits(uint64_t seed, const DrawPlace& place) {
  const PhiloxCounter bits =
      Philox4x32({static_cast<uint32_t>(place.position),
                  static_cast<uint32_t>(place.position >> 32), place.index, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{bits[1]} << 32 | bits[0];
}

// Bounded, so that 0 · inverse is 0 for the best token at the smallest temperatures too.
float InverseTemperature(float temperature) {
  return temperature == 0.0f ? 0.0f : std::min(1.0f / temperature, 1e30f);
}

absl::Status LogitNotFinite(size_t token, size_t vocab, float logit) {
  return absl::InternalError(absl::StrCat(
      "the logit of token ", token, " of ", vocab, " is ", logit,
      ": the model computed numbers that are not finite; check the checkpoint's weights"));
}

absl::StatusOr<uint32_t> Sample(std::span<const float> logits, const SamplingParams& params,
                                const TokenHistory& history, const DrawPlace& place,
                                SamplingScratch& scratch) {
  LogitScan scan = ScanLogits(logits.data(), logits.size());
  if (!scan.finite) return NotFinite(logits);
  if (ChangesLogits(params, history)) {
    scratch.logits.assign(logits.begin(), logits.end());
    AdjustLogits(params, history, scratch.logits);
    logits = scratch.logits;
    scan = ScanLogits(logits.data(), logits.size());
  }
  if (params.temperature == 0.0f) {
    return static_cast<uint32_t>(std::find(logits.begin(), logits.end(), scan.max) -
                                 logits.begin());
  }
  const float inverse_temperature = InverseTemperature(params.temperature);
  scratch.weights.resize(logits.size());
  ExpWeights(logits.data(), scan.max, inverse_temperature, logits.size(), scratch.weights.data());
  const WeightedRow row{logits, scratch.weights};
  CollectKept(row, params, scan.max, inverse_temperature, scratch);
  return Draw(row, scratch.tokens, RandomBits(params.seed, place));
}

absl::StatusOr<Logprobs> ChosenAndTopLogprobs(std::span<const float> logits, uint32_t chosen,
                                              size_t n) {
  RIVULET_CHECK(chosen < logits.size(), "the chosen token is not in the vocabulary");
  RIVULET_CHECK(n <= kMaxTopLogprobs, "too many top logprobs");
  if (!ScanLogits(logits.data(), logits.size()).finite) return NotFinite(logits);
  const float log_sum = LogSumExp(logits.data(), logits.size());
  Logprobs result{{chosen, logits[chosen] - log_sum}, {}};
  n = std::min(n, logits.size());
  // The best so far, sorted. A later token goes after its equals: ties to the lower id.
  std::vector<TokenLogprob>& top = result.top;
  for (uint32_t i = 0; n != 0 && i < logits.size(); ++i) {
    if (top.size() == n && logits[i] <= top.back().logprob) continue;
    if (top.size() == n) top.pop_back();
    const auto worse = [&](const TokenLogprob& other) { return other.logprob < logits[i]; };
    top.insert(std::find_if(top.begin(), top.end(), worse), {i, logits[i]});
  }
  for (TokenLogprob& token : top) token.logprob -= log_sum;
  return result;
}

namespace {

// With as many digits as the value has: 1.0000001 is not 1.
std::string Digits(float value) {
  std::array<char, 32> text = {};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return std::string(text.data(), end);
}

absl::Status CheckRange(bool within, absl::string_view field, float value,
                        absl::string_view range) {
  if (within) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("sampling.", field, " is ", Digits(value), "; it must be ", range));
}

}  // namespace

absl::Status CheckSamplingParams(const SamplingParams& p, size_t vocab) {
  const float t = p.temperature;
  RIVULET_RETURN_IF_ERROR(CheckRange(t >= 0 && std::isfinite(t), "temperature", t,
                                     "a number of at least 0 (0 is greedy)"));
  RIVULET_RETURN_IF_ERROR(CheckRange(p.top_p > 0 && p.top_p <= 1, "top_p", p.top_p,
                                     "above 0 and at most 1 (1 is off)"));
  RIVULET_RETURN_IF_ERROR(
      CheckRange(p.min_p >= 0 && p.min_p < 1, "min_p", p.min_p, "at least 0 (off) and below 1"));
  RIVULET_RETURN_IF_ERROR(
      CheckRange(p.repetition_penalty > 0 && std::isfinite(p.repetition_penalty),
                 "repetition_penalty", p.repetition_penalty, "a number above 0 (1 is off)"));
  RIVULET_RETURN_IF_ERROR(CheckRange(std::abs(p.frequency_penalty) <= 2, "frequency_penalty",
                                     p.frequency_penalty, "between -2 and 2 (0 is off)"));
  RIVULET_RETURN_IF_ERROR(CheckRange(std::abs(p.presence_penalty) <= 2, "presence_penalty",
                                     p.presence_penalty, "between -2 and 2 (0 is off)"));
  for (const LogitBias& bias : p.logit_bias) {
    if (bias.token >= vocab) {
      return absl::InvalidArgumentError(absl::StrCat("sampling.logit_bias names token ", bias.token,
                                                     "; the vocabulary ends at ", vocab - 1));
    }
    RIVULET_RETURN_IF_ERROR(CheckRange(std::abs(bias.bias) <= 100,
                                       absl::StrCat("logit_bias[", bias.token, "]"), bias.bias,
                                       "between -100 and 100"));
  }
  return absl::OkStatus();
}

}  // namespace rivulet
