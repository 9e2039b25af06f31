// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/device/buckets_operations.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/fake_operations.h"

namespace rivulet {
namespace {

using namespace fake;

// --- hashes ------------------------------------------------------------------------------------

// The projections of x on `count` outputs.
std::vector<float> Projections(const float* panels, uint32_t count, uint32_t inputs,
                               const float* x) {
  std::vector<float> y(count, 0.0f);
  for (uint32_t o = 0; o < count; ++o) {
    const float* weights = panels + o / 16 * inputs * 16 + o % 16;
    for (uint32_t i = 0; i < inputs; ++i) y[o] = std::fma(x[i], weights[i * 16], y[o]);
  }
  return y;
}

uint32_t PolytopeDigit(const std::vector<float>& y) {
  uint32_t best = 0;
  for (uint32_t i = 1; i < y.size(); ++i) {
    if (std::abs(y[i]) > std::abs(y[best])) best = i;
  }
  return best + (y[best] < 0.0f ? static_cast<uint32_t>(y.size()) : 0);
}

void HashRow(const HashCall& call, uint32_t head, const float* x, float* buckets) {
  const uint32_t outputs = call.tables * call.hashes, d = call.key_dim;
  const size_t width = call.cross_polytope ? d : outputs;
  const size_t group_floats = (width + 15) / 16 * 16 * d;
  const float* panels =
      call.panels + head * group_floats * (call.cross_polytope ? size_t{outputs} : 1);
  std::vector<float> signs;
  if (!call.cross_polytope) signs = Projections(panels, outputs, d, x);
  for (uint32_t table = 0; table < call.tables; ++table) {
    uint32_t bucket = 0, weight = 1;
    for (uint32_t j = table * call.hashes; j < (table + 1) * call.hashes; ++j) {
      if (call.cross_polytope) {
        bucket += weight * PolytopeDigit(Projections(panels + j * group_floats, d, d, x));
      } else if (signs[j] >= 0.0f) {
        bucket += weight;
      }
      weight *= call.cross_polytope ? 2 * d : 2;
    }
    buckets[table] = static_cast<float>(bucket);
  }
}

// --- buckets -----------------------------------------------------------------------------------

// One head and one token.
class HeadToken {
 public:
  HeadToken(const BucketsCall& call, const DeviceSegment& segment, uint32_t head, uint32_t token,
            uint64_t position)
      : c_(call), segment_(segment), head_(head), token_(token), position_(position) {
    auto* tail = c_.slots.tails + segment.tail * c_.slots.tail_stride;
    keys_ = reinterpret_cast<float*>(tail + c_.keys_offset) + size_t{head} * c_.tables * kChunk;
    values_ =
        reinterpret_cast<float*>(tail + c_.values_offset) + size_t{head} * kChunk * c_.padded_value;
  }

  void Run() {
    Append();
    Read();
    if (place() + 1 == kChunk) Fold();
  }

 private:
  uint64_t place() const { return position_ % kChunk; }
  bool fresh() const { return position_ < kChunk; }
  size_t buckets() const { return size_t{c_.tables} * c_.buckets; }
  float* Base(uint32_t slot, size_t offset) const {
    return reinterpret_cast<float*>(c_.slots.bases + slot * c_.slots.base_stride + offset);
  }
  float* Sums(uint32_t slot) const {
    return Base(slot, c_.sums_offset) + head_ * buckets() * c_.padded_value;
  }
  float* Counts(uint32_t slot) const { return Base(slot, c_.counts_offset) + head_ * buckets(); }

  void Append() {
    const float* keys = c_.k_buckets.row(token_) + head_ * c_.tables;
    for (uint32_t t = 0; t < c_.tables; ++t) keys_[t * kChunk + place()] = keys[t];
    float* row = values_ + place() * c_.padded_value;
    std::fill_n(row, c_.padded_value, 0.0f);
    std::copy_n(c_.v.row(token_) + head_ * c_.value_dim, c_.value_dim, row);
  }

  void Read() const {
    const float* query = c_.q_buckets.row(token_) + head_ * c_.tables;
    std::vector<float> sum(c_.padded_value, 0.0f);
    float count = 0.0f;
    for (uint32_t t = 0; t < c_.tables && !fresh(); ++t) {
      const uint32_t slot = BaseOf(c_.rows, segment_, position_);
      const size_t bucket = size_t{t} * c_.buckets + static_cast<size_t>(query[t]);
      const float* row = Sums(slot) + bucket * c_.padded_value;
      for (uint32_t e = 0; e < c_.padded_value; ++e) sum[e] += row[e];
      count += Counts(slot)[bucket];
    }
    for (uint64_t s = 0; s < place() + (c_.include_self ? 1 : 0); ++s) {
      float same = 0.0f;
      for (uint32_t t = 0; t < c_.tables; ++t) same += keys_[t * kChunk + s] == query[t] ? 1 : 0;
      const float* row = values_ + s * c_.padded_value;
      for (uint32_t e = 0; e < c_.padded_value; ++e) sum[e] = std::fma(same, row[e], sum[e]);
      count += same;
    }
    float* out = c_.out.row(token_) + size_t{head_} * c_.padded_value;
    for (uint32_t e = 0; e < c_.padded_value; ++e) out[e] = count == 0.0f ? 0.0f : sum[e] / count;
  }

  void Fold() const {
    const uint32_t from = BaseOf(c_.rows, segment_, position_);
    const uint32_t to = BaseAfter(c_.rows, segment_, token_);
    float *sums = Sums(to), *counts = Counts(to);
    if (fresh()) {
      std::fill_n(sums, buckets() * c_.padded_value, 0.0f);
      std::fill_n(counts, buckets(), 0.0f);
    } else if (from != to) {
      std::memcpy(sums, Sums(from), buckets() * c_.padded_value * sizeof(float));
      std::memcpy(counts, Counts(from), buckets() * sizeof(float));
    }
    for (uint64_t s = 0; s < kChunk; ++s) {
      for (uint32_t t = 0; t < c_.tables; ++t) {
        const size_t bucket = size_t{t} * c_.buckets + static_cast<size_t>(keys_[t * kChunk + s]);
        for (uint32_t e = 0; e < c_.padded_value; ++e) {
          sums[bucket * c_.padded_value + e] += values_[s * c_.padded_value + e];
        }
        counts[bucket] += 1.0f;
      }
    }
  }

  const BucketsCall& c_;
  const DeviceSegment& segment_;
  const uint32_t head_, token_;
  const uint64_t position_;
  float *keys_, *values_;
};

}  // namespace

void FakeDevice::Hash(const HashCall& call) {
  Do([=] {
    for (size_t t = 0; t < call.q.rows; ++t) {
      for (uint32_t head = 0; head < call.heads; ++head) {
        const size_t from = size_t{head} * call.key_dim, to = size_t{head} * call.tables;
        HashRow(call, head, call.q.row(t) + from, call.q_buckets.row(t) + to);
        HashRow(call, head, call.k.row(t) + from, call.k_buckets.row(t) + to);
      }
    }
  });
}

void FakeDevice::Buckets(const BucketsCall& call) {
  Do([=] {
    ForEachToken(call.rows, [&](const DeviceSegment& segment, uint32_t token, uint64_t position) {
      for (uint32_t head = 0; head < call.heads; ++head) {
        HeadToken(call, segment, head, token, position).Run();
      }
    });
  });
}

}  // namespace rivulet
