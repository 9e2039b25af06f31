// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Sampling of a FakeDevice: the whole row is sorted.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/device/fake_device.h"
#include "kernels/device/sampling_operations.h"

namespace rivulet {
namespace {

using namespace sampling;

float* FirstBroken(float* logits, size_t vocab) {
  return std::find_if(logits, logits + vocab, [](float l) { return !std::isfinite(l); });
}

// The order in which a block of 16 numbers is summed (kernels/base/simd-inl.h).
float SumOfLanes(float (&lanes)[16]) {
  for (size_t width = 8; width > 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

std::vector<uint32_t> Ranked(const float* logits, size_t vocab) {
  std::vector<uint32_t> tokens(vocab);
  std::iota(tokens.begin(), tokens.end(), 0);
  std::sort(tokens.begin(), tokens.end(),
            [=](uint32_t a, uint32_t b) { return RankKey(logits[a], a) < RankKey(logits[b], b); });
  return tokens;
}

void TakeLogits(const SampleRow& row, const float* logits, size_t vocab, LogprobResult& result) {
  const std::vector<uint32_t> ranked = Ranked(logits, vocab);
  for (size_t i = 0; i < std::min<size_t>(row.top_logits, vocab); ++i) {
    result.tokens[i] = ranked[i];
    result.logits[i] = logits[ranked[i]];
  }
  result.max = logits[ranked[0]];
  float lanes[16] = {};
  for (size_t i = 0; i < vocab; ++i) lanes[i % 16] += ExpOfNegative(logits[i] - result.max);
  result.sum = SumOfLanes(lanes);
  if (row.scored != kNoToken) result.scored = logits[row.scored];
}

// How many of the ranked tokens it takes until `enough`(tokens, mass), leaving out those without
// weight; and what they weigh.
template <typename Enough>
std::pair<size_t, uint64_t> Prefix(const std::vector<float>& weights, Enough&& enough) {
  size_t end = 0, tokens = 0;
  uint64_t mass = 0;
  for (size_t i = 0; i < weights.size() && !enough(tokens, mass); ++i) {
    if (FixedPoint(weights[i]) == 0) continue;
    end = i + 1;
    ++tokens;
    mass += FixedPoint(weights[i]);
  }
  return {end, mass};
}

// The tokens that may be drawn, ids ascending. `weights` are those of the ranked tokens.
std::vector<uint32_t> Kept(const SampleRow& row, const std::vector<uint32_t>& ranked,
                           const std::vector<float>& weights) {
  auto [end, mass] = Prefix(
      weights, [&](size_t tokens, uint64_t) { return row.top_k != 0 && tokens >= row.top_k; });
  if (row.top_p != 1.0f) {
    const double share = std::ceil(static_cast<double>(mass) * double{row.top_p});
    const auto goal = static_cast<uint64_t>(share);
    end = Prefix(weights, [=](size_t, uint64_t sum) { return sum >= goal; }).first;
  }
  std::vector<uint32_t> kept;
  for (size_t i = 0; i < end; ++i) {
    if (weights[i] >= row.min_p) kept.push_back(ranked[i]);
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

uint32_t Draw(const SampleRow& row, const float* logits, size_t vocab) {
  const std::vector<uint32_t> ranked = Ranked(logits, vocab);
  if (row.inverse_temperature == 0) return ranked[0];
  const float max = logits[ranked[0]];
  const auto weight = [&](uint32_t token) {
    return ExpOfNegative((logits[token] - max) * row.inverse_temperature);
  };
  std::vector<float> weights;
  for (const uint32_t token : ranked) weights.push_back(weight(token));
  const std::vector<uint32_t> kept = Kept(row, ranked, weights);
  uint64_t total = 0;
  for (const uint32_t token : kept) total += FixedPoint(weight(token));
  auto place = static_cast<uint64_t>(static_cast<unsigned __int128>(row.random_bits) * total >> 64);
  for (const uint32_t token : kept) {
    if (place < FixedPoint(weight(token))) return token;
    place -= FixedPoint(weight(token));
  }
  return kept.back();
}

// The row's edits, and that of the last token if it is not among them.
std::vector<LogitEdit> EditsOf(const SampleRow& row, const SampleCall& call) {
  std::vector<LogitEdit> edits(call.edits + row.first_edit,
                               call.edits + row.first_edit + row.edits);
  if (row.counts_last == 0) return edits;
  const uint32_t last = call.last_tokens[row.slot];
  auto found = std::find_if(edits.begin(), edits.end(),
                            [=](const LogitEdit& edit) { return edit.token == last; });
  if (found == edits.end()) found = edits.insert(edits.end(), {last, 0, 0, 0});
  found->marks = (found->marks + 1) | LogitEdit::kInSession;
  return edits;
}

void Confine(const uint64_t* mask, float* logits, size_t vocab) {
  for (uint32_t i = 0; i < vocab; ++i) {
    if (!MayCome(mask, i)) logits[i] = kForbiddenLogit;
  }
}

void SampleOne(const SampleCall& call, uint32_t index) {
  const SampleRow& row = call.rows[index];
  const bool wants_logits = row.top_logits != kNoToken;
  if (row.samples == 0 && !wants_logits) return;
  float* const logits = call.logits.row(index);
  const size_t vocab = call.logits.columns;
  const std::vector<float> raw(logits, logits + vocab);
  const std::vector<LogitEdit> edits = EditsOf(row, call);
  const bool confined = row.samples != 0 && row.mask != kNoMask;
  // Log-probabilities look at all logits.
  if (confined && !wants_logits) Confine(call.masks + row.mask, logits, vocab);
  for (const LogitEdit& edit : edits) {
    const bool hides = !wants_logits && (edit.marks & LogitEdit::kForbidden) != 0;
    if (hides) logits[edit.token] = kForbiddenLogit;
  }
  const float* const broken = FirstBroken(logits, vocab);
  SampleResult& result = call.results[index];
  result = {0, kNoToken, 0.0f};
  if (broken != logits + vocab) {
    result = {0, static_cast<uint32_t>(broken - logits), *broken};
  } else if (row.samples != 0) {
    if (confined && wants_logits) Confine(call.masks + row.mask, logits, vocab);
    for (const LogitEdit& edit : edits) {
      logits[edit.token] = Edited(logits[edit.token], edit, row);
    }
    result.token = Draw(row, logits, vocab);
  }
  if (wants_logits && broken == logits + vocab) {
    TakeLogits(row, raw.data(), vocab, call.logprobs[index]);
    call.logprobs[index].sampled = raw[result.token];
  }
  if (row.samples != 0 && row.slot != kNoToken) call.last_tokens[row.slot] = result.token;
}

}  // namespace

void FakeDevice::Sample(const SampleCall& call) {
  Do([=] {
    for (uint32_t i = 0; i < call.count; ++i) SampleOne(call, i);
  });
}

}  // namespace rivulet
