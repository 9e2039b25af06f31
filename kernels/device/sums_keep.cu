// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The tail's rows after segments of any length, where the blocks of sums.cu share them.
//
// Bytes expected: the rows of the chunk that is open at the end, once.
#include "kernels/device/sums.cuh"

namespace rivulet::cuda {
namespace {

// The rows that blocks share, after segments of any length: keys, values of grouped units and log
// decays of the chunk that is open at the end. A thread owns a channel of a row, or a scalar decay.
template <typename Row>
__global__ void KeepRowsKernel(const __grid_constant__ RecurCall c) {
  AllowNextKernel();
  AwaitLastKernel();
  const DeviceSegment& segment = c.rows.segments[blockIdx.y];
  if (segment.tokens == 0) return;
  const uint64_t end = segment.position + segment.tokens, border = end / kChunk * kChunk;
  const uint64_t first = max(border, segment.position);
  const uint32_t keys = c.units / c.units_per_key * c.padded_key;
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  std::byte* tail = c.slots.tails + segment.tail * c.slots.tail_stride;
  const auto token_of = [&](uint64_t position) {
    return segment.first_token + static_cast<size_t>(position - segment.position);
  };
  // Cumulative from the border: the first of these rows may go on from an older one.
  const auto keep_decays = [&](float* row, size_t width, const float* g, float rate) {
    float sum = first == border ? 0.0f : row[(first - border - 1) * width];
    for (uint64_t p = first; p < end; ++p) {
      sum += rate * g[token_of(p) * c.g_stride];
      row[(p - border) * width] = sum;
    }
  };
  if (i < keys) {
    const uint32_t unit = i / c.padded_key, d = i % c.padded_key;
    const size_t row = (size_t{unit} * kChunk) * c.padded_key + d;
    for (uint64_t p = first; p < end; ++p) {
      Store(reinterpret_cast<Row*>(tail + c.key_offset) + row + (p - border) * c.padded_key,
            c.k[token_of(p) * c.k_stride + i]);
    }
    return;
  }
  const uint32_t values = c.units_per_value == 1 ? 0 : c.units / c.units_per_value * c.padded_value;
  if (i < keys + values) {
    const uint32_t unit = (i - keys) / c.padded_value, e = (i - keys) % c.padded_value;
    const size_t row = (size_t{unit} * kChunk) * c.padded_value + e;
    for (uint64_t p = first; p < end; ++p) {
      const float v =
          e < c.value_dim ? c.v[token_of(p) * c.v_stride + unit * c.v_head_stride + e] : 0.0f;
      Store(reinterpret_cast<Row*>(tail + c.value_offset) + row + (p - border) * c.padded_value, v);
    }
    return;
  }
  const uint32_t unit = i - keys - values;
  if (c.decay == Decay::kChannel) {
    if (unit >= c.units / c.units_per_decay * c.padded_key) return;
    const size_t row = (size_t{unit / c.padded_key} * kChunk) * c.padded_key + unit % c.padded_key;
    return keep_decays(reinterpret_cast<float*>(tail + c.decay_offset) + row, c.padded_key,
                       c.g + unit, 1.0f);
  }
  if (unit >= c.units || c.decay != Decay::kScalar || c.constant != nullptr) return;
  keep_decays(reinterpret_cast<float*>(tail + c.decay_offset) + unit * kChunk, 1, c.g + unit,
              c.rate == nullptr ? 1.0f : c.rate[unit]);
}

}  // namespace

void LaunchKeepRows(const RecurCall& call, bool fp32_rows, const LaunchContext& context) {
  const uint32_t values = call.units_per_value == 1 ? 0 : call.units / call.units_per_value;
  const uint32_t decays = call.decay == Decay::kChannel
                              ? call.units / call.units_per_decay * call.padded_key
                              : call.units;
  const uint32_t threads =
      call.units / call.units_per_key * call.padded_key + values * call.padded_value + decays;
  const auto kernel = fp32_rows ? KeepRowsKernel<float> : KeepRowsKernel<bf16>;
  context.Run(kernel, dim3((threads + 127) / 128, call.rows.segment_count), 128, 0, call);
}

}  // namespace rivulet::cuda
