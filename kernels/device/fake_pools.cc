// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Pool selection of a FakeDevice: from the definition, a token after the other.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/device/fake_device.h"
#include "kernels/device/fake_operations.h"
#include "kernels/device/pool_operations.h"

namespace rivulet {
namespace {

using namespace fake;

// One session's planes.
struct SegmentPools {
  const PoolPlanes& planes;
  const DeviceSegment& segment;

  float* Tail(size_t offset) const {
    return reinterpret_cast<float*>(planes.slots.tails + segment.tail * planes.slots.tail_stride +
                                    offset);
  }
  float* Page(uint64_t page) const {
    const DeviceSegmentPages& pages = planes.pages.segments[&segment - planes.rows.segments];
    const uint32_t slot = planes.pages.slots[pages.first + page - pages.first_page];
    return reinterpret_cast<float*>(planes.slots.pages + slot * planes.slots.page_stride +
                                    planes.page_pools);
  }
  // Of a token at `position`, in whose chunk the keys of pools wait in the tail.
  const float* Key(uint64_t pool, uint64_t position) const {
    const uint64_t pools = kChunk / planes.pool, chunk = pool / pools;
    const float* from = chunk == position / kChunk ? Tail(planes.tail_pools) : Page(chunk);
    return from + pool % pools * planes.padded;
  }
};

void MeanUnderGates(const PoolKeysCall& call, const float* keys, const float* gates, float* mean) {
  const uint32_t stride = call.planes.padded, tokens = call.planes.pool;
  for (uint32_t d = 0; d < call.planes.key_dim; ++d) {
    const auto gate = [&](uint32_t i) {
      return gates[i * stride + d] + call.biases[i * stride + d];
    };
    float top = gate(0), sum = 0.0f, weights = 0.0f;
    for (uint32_t i = 1; i < tokens; ++i) top = std::max(top, gate(i));
    for (uint32_t i = 0; i < tokens; ++i) {
      const float weight = std::exp(gate(i) - top);
      weights += weight;
      sum += weight * keys[i * stride + d];
    }
    mean[d] = sum / weights;
  }
}

void FinishedMean(const PoolKeysCall& call, const float* keys, uint64_t position, float* mean) {
  const uint32_t width = call.planes.key_dim;
  float squares = 0.0f;
  for (uint32_t d = 0; d < width; ++d) {
    float sum = 0.0f;
    for (uint32_t i = 0; i < call.planes.pool; ++i) sum += keys[i * call.planes.padded + d];
    mean[d] = sum / static_cast<float>(call.planes.pool);
    squares += mean[d] * mean[d];
  }
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(width) + call.norm_eps);
  for (uint32_t d = 0; d < width; ++d) mean[d] *= scale * call.norm_weight[d];
  for (uint32_t i = 0; i < call.half; ++i) {
    const float angle = static_cast<float>(position) * call.frequencies[i];
    const float cosine = std::cos(angle) * call.amplitude, sine = std::sin(angle) * call.amplitude;
    const float first = mean[i], second = mean[i + call.half];
    mean[i] = first * cosine - second * sine;
    mean[i + call.half] = second * cosine + first * sine;
  }
}

void AppendToken(const PoolKeysCall& call, const DeviceSegment& segment, uint32_t token,
                 uint64_t position) {
  const PoolPlanes& planes = call.planes;
  const SegmentPools pools{planes, segment};
  const bool gated = call.gates.data != nullptr;
  const uint64_t place = position % kChunk;
  float* const keys = pools.Tail(call.tail_keys);
  float* const gates = gated ? pools.Tail(call.tail_gates) : nullptr;
  std::copy_n(call.k.row(token), planes.key_dim, keys + place * planes.padded);
  if (gated) std::copy_n(call.gates.row(token), planes.key_dim, gates + place * planes.padded);
  if ((place + 1) % planes.pool != 0) return;
  const uint64_t first = place + 1 - planes.pool;
  float* const mean = pools.Tail(planes.tail_pools) + place / planes.pool * planes.padded;
  std::fill_n(mean, planes.padded, 0.0f);
  if (gated) {
    MeanUnderGates(call, keys + first * planes.padded, gates + first * planes.padded, mean);
  } else {
    FinishedMean(call, keys + first * planes.padded, position + 1 - planes.pool, mean);
  }
  if (place + 1 != kChunk) return;
  std::copy_n(pools.Tail(planes.tail_pools), kChunk / planes.pool * planes.padded,
              pools.Page(position / kChunk));
}

float Score(const ChoosePoolsCall& call, uint32_t token, const float* key) {
  float score = 0.0f;
  for (uint32_t h = 0; h < call.heads; ++h) {
    const float* const q = call.q.row(token) + size_t{h} * call.head_stride;
    float dot = 0.0f;
    for (uint32_t d = 0; d < call.planes.key_dim; ++d) dot += q[d] * key[d];
    const float weight = call.weights.data == nullptr ? 1.0f : call.weights.row(token)[h];
    score += weight * (dot < 0.0f ? 0.0f : dot);
  }
  return score;
}

void Choose(const ChoosePoolsCall& call, const DeviceSegment& segment, uint32_t token,
            uint64_t position) {
  const SegmentPools pools{call.planes, segment};
  const uint64_t end = segment.position + segment.tokens;
  std::vector<std::pair<float, uint64_t>> scores;  // less: chosen first
  for (uint64_t p = 0; p < (position + 1) / call.planes.pool; ++p) {
    const float score = Score(call, token, pools.Key(p, end));
    scores.emplace_back(score != score ? -HUGE_VALF : -score, p);
  }
  const size_t count = std::min<size_t>(scores.size(), call.most);
  std::sort(scores.begin(), scores.end());
  float* const chosen = call.chosen.row(token);
  std::fill_n(chosen, call.most + 1, 0.0f);
  chosen[0] = static_cast<float>(count);
  for (size_t i = 0; i < count; ++i) chosen[1 + i] = static_cast<float>(scores[i].second);
  std::sort(chosen + 1, chosen + 1 + count);
}

}  // namespace

void FakeDevice::PoolKeys(const PoolKeysCall& call) {
  Do([=] {
    ForEachToken(call.planes.rows,
                 [&](const DeviceSegment& segment, uint32_t token, uint64_t position) {
                   AppendToken(call, segment, token, position);
                 });
  });
}

void FakeDevice::ChoosePools(const ChoosePoolsCall& call) {
  Do([=] {
    ForEachToken(call.planes.rows,
                 [&](const DeviceSegment& segment, uint32_t token, uint64_t position) {
                   Choose(call, segment, token, position);
                 });
  });
}

}  // namespace rivulet
