// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/device/experts_operations.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/fake_operations.h"

namespace rivulet {
namespace {

using namespace fake;

// Indices by falling value, NaN last, the lower one among equals.
std::vector<uint32_t> Ranked(const float* values, uint32_t count) {
  std::vector<uint32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0u);
  std::stable_sort(ids.begin(), ids.end(), [&](uint32_t a, uint32_t b) {
    const float x = values[a], y = values[b];
    return x > y || (!std::isnan(x) && std::isnan(y));
  });
  return ids;
}

// The ids of the chosen experts, ascending.
std::vector<uint32_t> Chosen(const float* scores, const ExpertRouting& routing) {
  std::vector<uint32_t> ids = Ranked(scores, routing.experts);
  ids.resize(routing.per_token);
  std::sort(ids.begin(), ids.end());
  return ids;
}

// What a group's two largest scores add up to.
float GroupScore(const float* scores, uint32_t size) {
  float first = scores[0], second = -std::numeric_limits<float>::infinity();
  const auto above = [](float a, float b) { return a > b || (!std::isnan(a) && std::isnan(b)); };
  for (uint32_t i = 1; i < size; ++i) {
    if (above(scores[i], first)) {
      second = std::exchange(first, scores[i]);
    } else if (above(scores[i], second)) {
      second = scores[i];
    }
  }
  return first + second;
}

// NaN for the experts of all but the best groups.
void ExcludeGroups(const RouteCall& call, std::vector<float>& scores) {
  const uint32_t size = call.routing.experts / call.groups;
  std::vector<float> sums;
  for (uint32_t g = 0; g < call.groups; ++g) sums.push_back(GroupScore(&scores[g * size], size));
  const std::vector<uint32_t> order = Ranked(sums.data(), call.groups);
  for (uint32_t i = call.groups_per_token; i < call.groups; ++i) {
    std::fill_n(scores.begin() + order[i] * size, size, std::numeric_limits<float>::quiet_NaN());
  }
}

void ChooseBySigmoid(const RouteCall& call, uint32_t token) {
  const ExpertRouting& r = call.routing;
  std::vector<float> scores(r.experts);
  const auto sigmoid = [&](uint32_t id) {
    return Function(Activation::kSigmoid, call.logits.row(token)[id]);
  };
  for (uint32_t id = 0; id < r.experts; ++id) {
    scores[id] = sigmoid(id) + (call.correction == nullptr ? 0.0f : call.correction[id]);
  }
  ExcludeGroups(call, scores);
  const std::vector<uint32_t> ids = Chosen(scores.data(), r);
  float sum = 1e-20f;
  for (uint32_t id : ids) sum += sigmoid(id);
  if (!call.weights_sum_to_one) sum = 1.0f;
  for (uint32_t i = 0; i < r.per_token; ++i) {
    r.expert[token * r.per_token + i] = ids[i];
    r.weight[token * r.per_token + i] = sigmoid(ids[i]) / sum * call.scaling;
  }
}

void ChooseBySoftmax(const RouteCall& call, uint32_t token) {
  const ExpertRouting& r = call.routing;
  const float* logits = call.logits.row(token);
  const std::vector<uint32_t> ids = Chosen(logits, r);
  float largest = logits[ids[0]], sum = 0.0f;
  for (uint32_t id : ids) largest = logits[id] > largest ? logits[id] : largest;
  for (uint32_t id = 0; id < r.experts; ++id) {
    if (call.weights_sum_to_one && !std::binary_search(ids.begin(), ids.end(), id)) continue;
    sum += std::exp(logits[id] - largest);
  }
  for (uint32_t i = 0; i < r.per_token; ++i) {
    r.expert[token * r.per_token + i] = ids[i];
    r.weight[token * r.per_token + i] = std::exp(logits[ids[i]] - largest) / sum * call.scaling;
  }
}

void OrderPairs(const RouteCall& call) {
  const ExpertRouting& r = call.routing;
  uint32_t row = 0, tiles = 0;
  for (uint32_t expert = 0; expert < r.experts; ++expert) {
    const uint32_t first = row;
    for (uint32_t pair = 0; pair < call.rows.tokens * r.per_token; ++pair) {
      if (r.expert[pair] != expert) continue;
      r.token_of_row[row] = pair / r.per_token;
      r.row[pair] = row++;
    }
    for (uint32_t begin = first; begin < row; begin += r.tile_rows) {
      r.tiles[tiles++] = {expert, begin, std::min(r.tile_rows, row - begin), 0};
    }
  }
  std::fill(r.tiles + tiles, r.tiles + r.most_tiles, ExpertTile{});
}

void ProductOfRow(const ExpertProductCall& call, uint32_t expert, uint32_t row,
                  std::optional<ProductPrecision> rounding) {
  const DeviceLinear& map = call.map;
  const size_t source = call.by_token ? call.routing.token_of_row[row] : row;
  for (uint32_t n = 0; n < map.outputs; ++n) {
    const size_t first = (size_t{expert} * map.outputs + n) * map.stride;
    float sum = 0.0f;
    for (uint32_t k = 0; k < map.inputs; ++k) {
      sum += Rounded(rounding, FromHalves(map.high[first + k], map.low[first + k])) *
             Rounded(rounding, OperandAt(call.x, source, k));
    }
    if (map.scale != nullptr) sum *= map.scale[size_t{expert} * map.outputs + n];
    call.y.row(row)[n] = sum;
  }
}

}  // namespace

void FakeDevice::Route(const RouteCall& call) {
  Do([=] {
    const ExpertRouting& r = call.routing;
    const uint32_t pairs = call.rows.tokens * r.per_token;
    std::fill_n(r.expert, pairs, UINT32_MAX);
    std::fill_n(r.row, pairs, UINT32_MAX);
    ForEachToken(call.rows, [&](const DeviceSegment&, uint32_t token, uint64_t) {
      call.sigmoid ? ChooseBySigmoid(call, token) : ChooseBySoftmax(call, token);
    });
    OrderPairs(call);
  });
}

void FakeDevice::ExpertProduct(const ExpertProductCall& call) {
  Do([=, this] {
    for (uint32_t i = 0; i < call.routing.most_tiles; ++i) {
      const ExpertTile& tile = call.routing.tiles[i];
      for (uint32_t r = 0; r < tile.rows; ++r) {
        ProductOfRow(call, tile.expert, tile.first_row + r, rounding);
      }
    }
  });
}

void FakeDevice::CombineExperts(const CombineExpertsCall& call) {
  Do([=] {
    const ExpertRouting& r = call.routing;
    for (uint32_t token = 0; token < call.y.rows; ++token) {
      float* y = call.y.row(token);
      float factor = call.adds ? 1.0f : 0.0f;
      if (call.gate.data != nullptr) factor = Function(Activation::kSigmoid, *call.gate.row(token));
      for (size_t c = 0; c < call.y.columns; ++c) y[c] = call.adds ? y[c] * factor : 0.0f;
      for (uint32_t pair = token * r.per_token; pair < (token + 1) * r.per_token; ++pair) {
        if (r.row[pair] == UINT32_MAX) continue;
        const float* output = call.outputs.row(r.row[pair]);
        for (size_t c = 0; c < call.y.columns; ++c) {
          y[c] = std::fma(r.weight[pair], output[c], y[c]);
        }
      }
    }
  });
}

}  // namespace rivulet
