// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/device/fake_device.h"
#include "kernels/device/fake_operations.h"
#include "kernels/device/running_state_operations.h"

namespace rivulet {
namespace {

using namespace fake;

float* Numbers(std::byte* slots, size_t stride, uint32_t slot, size_t offset) {
  return reinterpret_cast<float*>(slots + slot * stride + offset);
}

// Where a state is before and after a token.
struct StatePlaces {
  const float* from;  // null: zeros
  float* to;
};

template <typename Call>
StatePlaces PlacesOf(const Call& call, const DeviceSegment& segment, uint32_t token,
                     uint64_t position) {
  const auto base = [&](uint32_t slot) {
    return Numbers(call.slots.bases, call.slots.base_stride, slot, call.base_offset);
  };
  float* const tail =
      Numbers(call.slots.tails, call.slots.tail_stride, segment.tail, call.tail_offset);
  const uint64_t place = position % kChunk;
  const float* from = place == 0 ? base(BaseOf(call.rows, segment, position)) : tail;
  float* const to = place + 1 == kChunk ? base(BaseAfter(call.rows, segment, token)) : tail;
  return {position == 0 ? nullptr : from, to};
}

// One token and channel of a selective scan.
float ScanToken(const SelectiveScanCall& call, uint32_t token, uint32_t channel,
                const StatePlaces& places) {
  const float delta = Function(Activation::kSoftplus, call.dt.row(token)[channel]);
  const float x = call.x.row(token)[channel];
  const size_t first = size_t{channel} * call.padded_state;
  float y = 0.0f;
  for (uint32_t n = 0; n < call.state_size; ++n) {
    const float before = places.from == nullptr ? 0.0f : places.from[first + n];
    const float h = std::exp(delta * call.a[first + n]) * before + delta * x * call.b.row(token)[n];
    places.to[first + n] = h;
    y += h * call.c.row(token)[n];
  }
  return (y + call.skip[channel] * x) * Function(Activation::kSilu, call.z.row(token)[channel]);
}

float* TailKeys(const FilterCall& call, const DeviceSegment& segment, uint64_t place) {
  return Numbers(call.slots.tails, call.slots.tail_stride, segment.tail, call.tail_offset) +
         place * call.padded;
}

float* RingKeys(const FilterCall& call, uint32_t slot, uint64_t position) {
  return Numbers(call.slots.bases, call.slots.base_stride, slot, call.ring_offset) +
         position % call.ring_rows * call.padded;
}

// The chunk's keys take the place of the oldest ones.
void FoldKeys(const FilterCall& call, const DeviceSegment& segment, uint32_t token,
              uint64_t position) {
  const uint32_t from = BaseOf(call.rows, segment, position);
  const uint32_t to = BaseAfter(call.rows, segment, token);
  for (uint64_t r = 0; r < call.ring_rows && from != to; ++r) {
    std::copy_n(RingKeys(call, from, r), call.channels, RingKeys(call, to, r));
  }
  for (uint64_t s = 0; s < kChunk; ++s) {
    std::copy_n(TailKeys(call, segment, s), call.channels,
                RingKeys(call, to, position - position % kChunk + s));
  }
}

void FilterToken(const FilterCall& call, const DeviceSegment& segment, uint32_t token,
                 uint64_t position) {
  const uint64_t place = position % kChunk;
  const uint32_t base = BaseOf(call.rows, segment, position);
  std::copy_n(call.x.row(token), call.channels, TailKeys(call, segment, place));
  float* y = call.y.row(token);
  std::fill_n(y, call.channels, 0.0f);
  for (uint64_t lag = 0; lag < call.window && lag <= position; ++lag) {
    const float* keys =
        lag <= place ? TailKeys(call, segment, place - lag) : RingKeys(call, base, position - lag);
    for (uint32_t i = 0; i < call.channels; ++i) y[i] += call.taps[lag * call.padded + i] * keys[i];
  }
  if (place + 1 == kChunk) FoldKeys(call, segment, token, position);
}

// One token and pair of rows of a head's modes, whose states begin at `first`.
float ModesToken(const ModeScanCall& call, uint32_t head, size_t first, float u,
                 const StatePlaces& places) {
  float sum = call.skip[head] * u;
  for (uint32_t m = 0; m < call.padded_modes; ++m) {
    const size_t at = first + 2 * m, own = (size_t{head} * call.padded_modes + m) * 2;
    const float re = places.from == nullptr ? 0.0f : places.from[at];
    const float im = places.from == nullptr ? 0.0f : places.from[at + 1];
    const float pole_re = call.poles[own], pole_im = call.poles[own + 1];
    const float next_re = pole_re * re - pole_im * im + u, next_im = pole_re * im + pole_im * re;
    places.to[at] = next_re;
    places.to[at + 1] = next_im;
    sum += call.weights[own] * next_re - call.weights[own + 1] * next_im;
  }
  return sum;
}

// Of output row j of a head.
float HeadToken(const ModeScanCall& call, uint32_t token, uint32_t head, uint32_t j,
                const StatePlaces& places) {
  const size_t column = size_t{head} * call.head_dim;
  float y = 0.0f;
  for (uint32_t i = 0; i < call.head_dim; ++i) {
    const float u = call.k.row(token)[column + i] * call.v.row(token)[column + j];
    const size_t state = (i * call.padded_columns + column + j) * call.padded_modes * 2;
    y += call.q.row(token)[column + i] * ModesToken(call, head, state, u, places);
  }
  return y;
}

}  // namespace

void FakeDevice::SelectiveScan(const SelectiveScanCall& call) {
  Do([=] {
    ForEachToken(call.rows, [&](const DeviceSegment& segment, uint32_t token, uint64_t position) {
      const StatePlaces places = PlacesOf(call, segment, token, position);
      for (uint32_t i = 0; i < call.y.columns; ++i) {
        StoreOperand(call.y, token, i,
                     i < call.channels ? ScanToken(call, token, i, places) : 0.0f);
      }
    });
  });
}

void FakeDevice::GatedScan(const GatedScanCall& call) {
  Do([=] {
    ForEachToken(call.rows, [&](const DeviceSegment& segment, uint32_t token, uint64_t position) {
      const StatePlaces places = PlacesOf(call, segment, token, position);
      for (uint32_t i = 0; i < call.channels; ++i) {
        const float log_a =
            call.rate[i] * Function(Activation::kSigmoid, call.recurrent_gate.row(token)[i]);
        float h =
            Function(Activation::kSigmoid, call.input_gate.row(token)[i]) * call.x.row(token)[i];
        if (places.from != nullptr) {
          h = std::exp(log_a) * places.from[i] + std::sqrt(-std::expm1(2.0f * log_a)) * h;
        }
        places.to[i] = h;
        call.h.row(token)[i] = h;
      }
    });
  });
}

void FakeDevice::Filter(const FilterCall& call) {
  Do([=] {
    ForEachToken(call.rows, [&](const DeviceSegment& segment, uint32_t token, uint64_t position) {
      FilterToken(call, segment, token, position);
    });
  });
}

void FakeDevice::ScanModes(const ModeScanCall& call) {
  Do([=] {
    const uint32_t columns = call.heads * call.head_dim;
    ForEachToken(call.rows, [&](const DeviceSegment& segment, uint32_t token, uint64_t position) {
      const StatePlaces places = PlacesOf(call, segment, token, position);
      for (uint32_t i = 0; i < columns; ++i) {
        const uint32_t head = i / call.head_dim, j = i % call.head_dim;
        StoreOperand(call.y, token, j * call.heads + head, HeadToken(call, token, head, j, places));
      }
      for (uint32_t i = columns; i < call.y.columns; ++i) StoreOperand(call.y, token, i, 0.0f);
    });
  });
}

}  // namespace rivulet
