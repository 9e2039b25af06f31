// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Sums that are read one after the other, plainly: a token's rows, its reads in order, and after
// the last token of a chunk its folds.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/fake_operations.h"
#include "kernels/device/sum_program_operations.h"

namespace rivulet {
namespace {

using fake::kChunk;

// One head of a unit at one token. Rows are fp32, states in plain row-major order.
class ProgramHead {
 public:
  ProgramHead(const SumProgramCall& call, const DeviceSegment& segment, uint32_t head,
              uint32_t token, uint64_t position)
      : c_(call),
        segment_(segment),
        head_(head),
        token_(token),
        place_(static_cast<int>(position % kChunk)),
        fresh_(position < kChunk),
        base_(fake::BaseOf(call.rows, segment, position)) {}

  void AppendRows() const {
    for (uint32_t r = 0; r < c_.row_count; ++r) {
      const ProgramRow& row = c_.rows_of[r];
      float* to = RowAt(row, place_);
      for (uint32_t i = 0; i < row.copies; ++i) {
        const ProgramVector& from = c_.vectors[row.copy[i]];
        to = std::copy_n(VectorAt(from), from.width, to);
      }
    }
  }

  void RunReads() const {
    float normaliser = 0.0f;
    for (uint32_t i = 0; i < c_.read_count; ++i) RunRead(c_.reads[i], normaliser);
    if (!c_.divides) return;
    const ProgramVector& out = c_.vectors[c_.out];
    const float n = normaliser + c_.denominator_eps;
    for (uint32_t e = 0; e < out.width; ++e) {
      float& o = VectorAt(out)[e];
      o = c_.reciprocal ? o * (1.0f / n) : o / n;
    }
  }

  void Fold(const ProgramSum& sum) const {
    for (uint32_t e = 0; e < sum.padded_value; ++e) {
      for (uint32_t d = 0; d < c_.padded_key; ++d) {
        float x = fresh_ ? 0.0f : Number(sum, base_, e, d) * Decayed(sum, -1, kLast);
        for (int s = 0; s <= kLast; ++s) x += FoldedKey(sum, s, d) * Value(sum, s)[e];
        SetNumber(sum, e, d, x);
      }
    }
    if (!sum.normaliser) return;
    for (uint32_t d = 0; d < c_.padded_key; ++d) {
      float z = fresh_ ? 0.0f : Normaliser(sum, base_)[d] * Decayed(sum, -1, kLast);
      for (int s = 0; s <= kLast; ++s) z += FoldedKey(sum, s, d) * Extra(sum, s);
      Normaliser(sum, BaseAfter(c_.rows, segment_, token_))[d] = z;
    }
  }

 private:
  static constexpr int kLast = static_cast<int>(kChunk) - 1;

  uint32_t Index(bool per_head) const { return per_head ? head_ : head_ / c_.unit_heads; }
  float* Tail(size_t offset) const {
    return reinterpret_cast<float*>(c_.slots.tails + segment_.tail * c_.slots.tail_stride + offset);
  }
  float* RowAt(const ProgramRow& row, int place) const {
    return Tail(row.offset) + (Index(row.per_head) * kChunk + place) * row.width;
  }
  float* VectorAt(const ProgramVector& vector) const {
    const uint32_t index = vector.per_head ? head_ : head_ / c_.group_heads;
    return vector.data + size_t{token_} * vector.stride + index * vector.width;
  }
  float* Key(const ProgramSum& sum, int s) const { return RowAt(c_.rows_of[sum.key], s); }
  float* Value(const ProgramSum& sum, int s) const {
    return RowAt(c_.rows_of[sum.value], s) + sum.value_column;
  }
  float Extra(const ProgramSum& sum, int s) const {
    const ProgramRow& row = c_.rows_of[sum.value];
    return row.extra ? Tail(row.extra_offset)[head_ * kChunk + s] : 1.0f;
  }
  std::byte* Matrix(const ProgramSum& sum, uint32_t slot) const {
    const size_t numbers = size_t{c_.padded_key} * sum.padded_value;
    return c_.slots.bases + slot * c_.slots.base_stride + sum.offset +
           Index(sum.per_head) * numbers * (c_.bf16_state ? 2 : 4);
  }
  float Number(const ProgramSum& sum, uint32_t slot, uint32_t e, uint32_t d) const {
    const DType dtype = c_.bf16_state ? DType::kBFloat16 : DType::kFloat32;
    return NumberAt(Matrix(sum, slot), dtype, size_t{e} * c_.padded_key + d);
  }
  void SetNumber(const ProgramSum& sum, uint32_t e, uint32_t d, float x) const {
    const size_t i = size_t{e} * c_.padded_key + d;
    const size_t bytes = c_.bf16_state ? 2 : 4;
    const uint32_t slot = BaseAfter(c_.rows, segment_, token_);
    fake::StoreNumber(c_.bf16_state, x, Matrix(sum, slot) + bytes * i);
  }
  float* Normaliser(const ProgramSum& sum, uint32_t slot) const {
    return reinterpret_cast<float*>(c_.slots.bases + slot * c_.slots.base_stride +
                                    sum.normaliser_offset) +
           Index(sum.per_head) * c_.padded_key;
  }

  float LogDecay(int place) const { return place < 0 ? 0.0f : c_.decays[head_ * kChunk + place]; }
  // From place s, or the border at -1, to place a.
  float Decayed(const ProgramSum& sum, int s, int a) const {
    if (c_.decays == nullptr) return 1.0f;
    return std::exp(sum.decay_power * (LogDecay(a) - LogDecay(s)));
  }
  float FoldedKey(const ProgramSum& sum, int s, uint32_t d) const {
    return Key(sum, s)[d] * Decayed(sum, s, kLast);
  }

  void RunRead(const ProgramRead& read, float& normaliser) const {
    const ProgramSum& sum = c_.sums[read.sum];
    const float* query = VectorAt(c_.vectors[read.query]);
    const int last = place_ - (read.strict ? 1 : 0);
    float scores[kChunk] = {};
    for (int s = 0; s <= last; ++s) {
      for (uint32_t d = 0; d < c_.padded_key; ++d) scores[s] += query[d] * Key(sum, s)[d];
      scores[s] *= Decayed(sum, s, last);
    }
    const float weight = Decayed(sum, -1, last);
    std::vector<float> result(sum.padded_value);
    for (uint32_t e = 0; e < sum.padded_value; ++e) {
      float x = 0.0f;
      for (uint32_t d = 0; d < c_.padded_key && !fresh_; ++d) {
        x += query[d] * Number(sum, base_, e, d);
      }
      x *= weight;
      for (int s = 0; s <= last; ++s) x += scores[s] * Value(sum, s)[e];
      result[e] = read.ridge == 0.0f ? x : x + read.ridge * query[e];
    }
    Write(read, result);
    if (sum.normaliser) ReadNormaliser(read, query, weight, scores, last, normaliser);
  }

  void Write(const ProgramRead& read, const std::vector<float>& result) const {
    float* to = read.to_row ? RowAt(c_.rows_of[read.to], place_) : VectorAt(c_.vectors[read.to]);
    for (size_t e = 0; e < result.size(); ++e) {
      to[e] = read.add == 0.0f ? result[e] : to[e] + read.add * result[e];
    }
  }

  void ReadNormaliser(const ProgramRead& read, const float* query, float weight,
                      const float* scores, int last, float& normaliser) const {
    const ProgramSum& sum = c_.sums[read.sum];
    float n = 0.0f;
    for (uint32_t d = 0; d < c_.padded_key && !fresh_; ++d) {
      n += query[d] * Normaliser(sum, base_)[d];
    }
    n *= weight;
    for (int s = 0; s <= last; ++s) n += scores[s] * Extra(sum, s);
    if (read.to_row) {
      Tail(c_.rows_of[read.to].extra_offset)[head_ * kChunk + place_] = n;
    } else if (read.to == c_.out) {
      normaliser = read.add == 0.0f ? n : normaliser + read.add * n;
    }
  }

  const SumProgramCall& c_;
  const DeviceSegment& segment_;
  const uint32_t head_, token_;
  const int place_;
  const bool fresh_;
  const uint32_t base_;
};

// All heads of a unit, whose sums may be shared.
void RunUnit(const SumProgramCall& call, const DeviceSegment& segment, uint32_t unit,
             uint32_t token, uint64_t position) {
  std::vector<ProgramHead> heads;
  for (uint32_t i = 0; i < call.unit_heads; ++i) {
    heads.emplace_back(call, segment, unit * call.unit_heads + i, token, position);
  }
  for (const ProgramHead& head : heads) head.AppendRows();
  for (const ProgramHead& head : heads) head.RunReads();
  if (position % kChunk + 1 != kChunk) return;
  for (uint32_t i = 0; i < call.sum_count; ++i) {
    for (const ProgramHead& head : heads) {
      head.Fold(call.sums[i]);
      if (!call.sums[i].per_head) break;
    }
  }
}

}  // namespace

void FakeDevice::RunSumProgram(const SumProgramCall& call) {
  Do([=] {
    fake::ForEachToken(call.rows,
                       [&](const DeviceSegment& segment, uint32_t token, uint64_t position) {
                         for (uint32_t unit = 0; unit < call.units; ++unit) {
                           RunUnit(call, segment, unit, token, position);
                         }
                       });
  });
}

}  // namespace rivulet
