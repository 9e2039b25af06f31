// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "kernels/device/fake_device.h"
#include "kernels/device/fake_operations.h"
#include "kernels/device/ngram_operations.h"

namespace rivulet {
namespace {

using namespace fake;

uint32_t IdOf(const NgramRowsCall& call, const DeviceSegment& segment, uint32_t token) {
  const uint32_t id = call.ids[token];
  return id == UINT32_MAX ? call.last_tokens[segment.tail] : id;
}

// The token's id and those before it.
using Ids = std::array<uint32_t, kMostDeviceNgram>;

// Appends the token's id. The ids of a chunk that ends become those before the next.
Ids AppendId(const NgramRowsCall& call, const DeviceSegment& segment, uint32_t token,
             uint64_t position) {
  const uint64_t place = position % kChunk;
  auto* const tail = reinterpret_cast<uint32_t*>(
      call.slots.tails + segment.tail * call.slots.tail_stride + call.tail_offset);
  const auto before = [&](uint32_t slot) {
    return reinterpret_cast<uint32_t*>(call.slots.bases + slot * call.slots.base_stride +
                                       call.before_offset);
  };
  Ids ids = {};
  ids[0] = IdOf(call, segment, token);
  tail[place] = ids[0] + 1;
  for (uint32_t i = 1; i < call.ngram; ++i) {
    const bool ended = i > 1 && ids[i - 1] == call.end_of_text;
    if (ended || position < i) {
      ids[i] = call.end_of_text;
    } else if (i <= place) {
      ids[i] = tail[place - i] - 1;
    } else {
      ids[i] = before(BaseOf(call.rows, segment, position))[i - place - 1] - 1;
    }
  }
  if (place + 1 != kChunk) return ids;
  uint32_t* const after = before(BaseAfter(call.rows, segment, token));
  for (uint32_t i = 0; i + 1 < call.ngram; ++i) after[i] = tail[place - i];
  return ids;
}

float TableNumber(const DeviceLinear& table, uint64_t row, uint32_t column) {
  const size_t at = row * table.stride + column;
  return FromHalves(table.high[at], table.low[at]);
}

void StoreRows(const NgramRowsCall& call, const Ids& ids, uint32_t token) {
  const uint64_t *const sizes = call.hash + call.ngram, *const offsets = sizes + call.heads;
  const uint32_t each = call.heads / (call.ngram - 1), width = call.table.inputs;
  uint64_t mixed = ids[0] * call.hash[0];
  for (uint32_t head = 0; head < call.heads; ++head) {
    if (head % each == 0) mixed ^= ids[head / each + 1] * call.hash[head / each + 1];
    const uint64_t row = offsets[head] + mixed % sizes[head];
    for (uint32_t i = 0; i < width; ++i) {
      StoreOperand(call.y, token, head * width + i, TableNumber(call.table, row, i));
    }
  }
  for (uint32_t i = call.heads * width; i < call.y.columns; ++i) StoreOperand(call.y, token, i, 0);
}

float InverseRms(const float* x, size_t count, float eps) {
  float squares = 0.0f;
  for (size_t i = 0; i < count; ++i) squares += x[i] * x[i];
  return 1.0f / std::sqrt(squares / static_cast<float>(count) + eps);
}

float SignedRoot(float x) {
  const float root = std::sqrt(std::max(std::abs(x), 1e-6f));
  return x > 0 ? root : x < 0 ? -root : x;  // NaN stays
}

void GateStream(const NgramGateCall& call, size_t token, size_t first) {
  const size_t width = call.value.columns;
  const float *const key = call.keys.row(token) + first, *const x = call.x.row(token) + first;
  const float of_key = InverseRms(key, width, call.eps), of_x = InverseRms(x, width, call.eps);
  float dot = 0.0f;
  for (size_t i = 0; i < width; ++i) {
    dot +=
        key[i] * of_key * call.key_weight[first + i] * (x[i] * of_x * call.query_weight[first + i]);
  }
  const float gate =
      Function(Activation::kSigmoid, SignedRoot(dot / std::sqrt(static_cast<float>(width))));
  float* const gated = call.gated.row(token) + first;
  for (size_t i = 0; i < width; ++i) gated[i] = gate * call.value.row(token)[i];
  const float scale = InverseRms(gated, width, call.eps);
  for (size_t i = 0; i < width; ++i) {
    call.normed.row(token)[first + i] = gated[i] * scale * call.weight[first + i];
  }
}

}  // namespace

void FakeDevice::NgramRows(const NgramRowsCall& call) {
  Do([=] {
    ForEachToken(call.rows, [&](const DeviceSegment& segment, uint32_t token, uint64_t position) {
      StoreRows(call, AppendId(call, segment, token, position), token);
    });
  });
}

void FakeDevice::NgramGate(const NgramGateCall& call) {
  Do([=] {
    for (size_t t = 0; t < call.x.rows; ++t) {
      for (size_t s = 0; s < call.streams; ++s) GateStream(call, t, s * call.value.columns);
    }
  });
}

}  // namespace rivulet
