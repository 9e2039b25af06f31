// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Softmax attention of a FakeDevice: from the definition, a token and a head after the other.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/device/fake_device.h"
#include "kernels/device/fake_operations.h"
#include "kernels/device/softmax_operations.h"

namespace rivulet {
namespace {

using namespace fake;

class AttendToken {
 public:
  AttendToken(const AttendCall& call, const DeviceSegment& segment, uint32_t token,
              uint64_t position)
      : c_(call),
        segment_(segment),
        pages_(call.pages.segments[&segment - call.rows.segments]),
        token_(token),
        position_(position) {}

  void Append() const {
    const size_t row = size_t{position_ % kChunk} * c_.padded;
    for (uint32_t head = 0; head < c_.kv_heads; ++head) {
      const size_t column = size_t{head} * c_.padded;
      Write(Head(Tail(c_.tail_key_offset), head), row,
            c_.k + size_t{token_} * c_.k_stride + column);
      if (c_.values_are_keys) continue;
      Write(Head(Tail(c_.tail_value_offset), head), row,
            c_.v + size_t{token_} * c_.v_stride + column);
    }
    if (position_ % kChunk + 1 != kChunk) return;
    std::byte* page = Page(position_ / kChunk);
    const size_t bytes = HeadBytes() * c_.kv_heads;
    std::memcpy(page + c_.page_key_offset, Tail(c_.tail_key_offset), bytes);
    std::memcpy(page + c_.page_value_offset, Tail(c_.tail_value_offset), bytes);
  }

  void Attend(uint32_t head) const {
    const uint32_t kv = head / (c_.heads / c_.kv_heads);
    const float* q = c_.q + size_t{token_} * c_.q_stride + size_t{head} * c_.padded;
    const std::vector<uint64_t> seen = Seen();
    std::vector<float> weights, o(c_.padded, 0.0f);
    for (const uint64_t s : seen) {
      float score = 0.0f;
      for (uint32_t d = 0; d < c_.padded; ++d) score += q[d] * Key(s, kv, d);
      weights.push_back(score);
    }
    const float largest = *std::max_element(weights.begin(), weights.end());
    float sum = 0.0f;
    for (size_t i = 0; i < seen.size(); ++i) {
      const float weight = std::exp(weights[i] - largest);
      sum += weight;
      for (uint32_t e = 0; e < c_.padded; ++e) o[e] += weight * Value(seen[i], kv, e);
    }
    float* out = c_.out.row(token_) + size_t{head} * c_.padded;
    for (uint32_t e = 0; e < c_.padded; ++e) out[e] = o[e] / sum;
  }

 private:
  // Positions, ascending.
  std::vector<uint64_t> Seen() const {
    std::vector<uint64_t> seen;
    uint64_t first = FirstSeen(position_, c_.window, c_.unseen);
    if (c_.pool != 0) {
      const float* const chosen = c_.chosen.row(token_);
      for (uint32_t i = 0; i < static_cast<uint32_t>(chosen[0]); ++i) {
        const auto begin = static_cast<uint64_t>(chosen[1 + i]) * c_.pool;
        for (uint64_t s = begin; s < begin + c_.pool; ++s) seen.push_back(s);
      }
      first = (position_ + 1) / c_.pool * c_.pool;
    }
    for (uint64_t s = first; s <= position_; ++s) seen.push_back(s);
    return seen;
  }

  DType dtype() const { return c_.bf16_pages ? DType::kBFloat16 : DType::kFloat32; }
  size_t HeadBytes() const { return size_t{kChunk} * c_.padded * DTypeSize(dtype()); }
  std::byte* Tail(size_t offset) const {
    return c_.slots.tails + segment_.tail * c_.slots.tail_stride + offset;
  }
  std::byte* Page(uint64_t page) const {
    const uint32_t slot = c_.pages.slots[pages_.first + page - pages_.first_page];
    return c_.slots.pages + slot * c_.slots.page_stride;
  }
  std::byte* Head(std::byte* plane, uint32_t head) const { return plane + head * HeadBytes(); }

  void Write(std::byte* plane, size_t at, const float* row) const {
    for (uint32_t i = 0; i < c_.padded; ++i) {
      const uint16_t bits = FloatToBFloat16(row[i]);
      if (c_.bf16_pages) {
        std::memcpy(plane + 2 * (at + i), &bits, 2);
      } else {
        std::memcpy(plane + 4 * (at + i), row + i, 4);
      }
    }
  }

  // Number i of a head's row of token s. The tail still has the rows of the token's own chunk.
  float Number(uint64_t s, uint32_t head, uint32_t i, size_t tail, size_t page) const {
    const bool own = s / kChunk == position_ / kChunk;
    std::byte* plane = own ? Tail(tail) : Page(s / kChunk) + page;
    return NumberAt(Head(plane, head), dtype(), size_t{s % kChunk} * c_.padded + i);
  }
  float Key(uint64_t s, uint32_t head, uint32_t d) const {
    return Number(s, head, d, c_.tail_key_offset, c_.page_key_offset);
  }
  float Value(uint64_t s, uint32_t head, uint32_t e) const {
    return Number(s, head, e, c_.tail_value_offset, c_.page_value_offset);
  }

  const AttendCall& c_;
  const DeviceSegment& segment_;
  const DeviceSegmentPages& pages_;
  const uint32_t token_;
  const uint64_t position_;
};

}  // namespace

void FakeDevice::Attend(const AttendCall& call) {
  Do([=] {
    ForEachToken(call.rows, [&](const DeviceSegment& segment, uint32_t token, uint64_t position) {
      const AttendToken one(call, segment, token, position);
      one.Append();
      if (call.out.data == nullptr) return;
      for (uint32_t head = 0; head < call.heads; ++head) one.Attend(head);
    });
  });
}

}  // namespace rivulet
