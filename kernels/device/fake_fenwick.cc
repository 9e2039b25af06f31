// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A sum in pages on the fake device, from its definition: a read walks back from the token through
// the chunk and takes every transition into its query; a fold applies the chunk's tokens to a page
// one after the other.
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/device/fake_device.h"
#include "kernels/device/fake_operations.h"
#include "kernels/device/fenwick_operations.h"

namespace rivulet {
namespace {

using namespace fake;

uint32_t BitWidth(uint64_t x) {
  uint32_t bits = 0;
  for (; x != 0; x >>= 1) ++bits;
  return bits;
}

// One head and one token.
class FenwickToken {
 public:
  FenwickToken(const FenwickCall& call, uint32_t segment, uint32_t head, uint32_t token,
               uint64_t position)
      : c_(call),
        segment_(call.rows.segments[segment]),
        head_(head),
        token_(token),
        place_(position % kChunk),
        chunk_(position / kChunk),
        base_(BaseOf(call.rows, segment_, position)),
        table_(call.pages.slots + call.pages.segments[segment].first +
               (chunk_ - segment_.position / kChunk) * call.pages.levels) {}

  void Run() {
    Append();
    Read();
    if (place_ + 1 == kChunk) Fold();
  }

 private:
  using Matrix = std::vector<float>;  // [Ep, Dp]

  float* Tail(size_t offset, size_t index) const {
    return reinterpret_cast<float*>(c_.slots.tails + segment_.tail * c_.slots.tail_stride +
                                    offset) +
           index;
  }
  float* Key(uint64_t s) const {
    return Tail(c_.key_offset, (head_ / c_.heads_per_key * kChunk + s) * c_.padded_key);
  }
  float* Value(uint64_t s) const {
    return Tail(c_.value_offset, (head_ * kChunk + s) * c_.padded_value);
  }
  float& Decay(uint64_t s) const { return *Tail(c_.decay_offset, head_ * kChunk + s); }
  float Gate(uint64_t s) const { return s == 0 ? Decay(0) : Decay(s) - Decay(s - 1); }
  float Beta(uint64_t s) const {
    return c_.delta ? *Tail(c_.beta_offset, head_ * kChunk + s) : 1.0f;
  }
  const float* InputValue() const {
    return c_.v + size_t{token_} * c_.v_stride + size_t{head_} * c_.v_head_stride;
  }
  // [P, 2], as the columns from `first` on know it.
  float* PageDecay(uint32_t slot, uint32_t first) const {
    const size_t index = size_t{head_} * (c_.padded_value / 16) + first / 16;
    return reinterpret_cast<float*>(c_.slots.bases + slot * c_.slots.base_stride +
                                    c_.page_decay_offset) +
           index * 2 * c_.pages.levels;
  }
  bool Exists(uint32_t page) const { return (LivePages(chunk_, c_.pages.levels) >> page & 1) != 0; }
  size_t elements() const { return size_t{c_.padded_key} * c_.padded_value; }
  DType dtype() const { return c_.bf16_pages ? DType::kBFloat16 : DType::kFloat32; }
  std::byte* Page(uint32_t slot) const {
    return c_.slots.pages + slot * c_.slots.page_stride + c_.matrix_offset +
           head_ * elements() * DTypeSize(dtype());
  }

  void Append() const {
    const float step = c_.g[size_t{token_} * c_.g_stride + head_];
    const size_t key = size_t{head_ / c_.heads_per_key} * c_.padded_key;
    std::copy_n(c_.k + size_t{token_} * c_.k_stride + key, c_.padded_key, Key(place_));
    for (uint32_t e = 0; e < c_.padded_value; ++e) {
      const float v = e < c_.value_dim ? InputValue()[e] : 0.0f;
      Value(place_)[e] = c_.times_step ? step * v : v;
    }
    Decay(place_) = (place_ == 0 ? 0.0f : Decay(place_ - 1)) +
                    (c_.rate == nullptr ? step : c_.rate[head_] * step);
    if (!c_.delta) return;
    *Tail(c_.beta_offset, head_ * kChunk + place_) =
        c_.beta[size_t{token_} * c_.beta_stride + head_];
  }

  void Read() const {
    const float* input =
        c_.q + size_t{token_} * c_.q_stride + size_t{head_ / c_.heads_per_key} * c_.padded_key;
    std::vector<float> query(input, input + c_.padded_key), sum(c_.padded_value, 0.0f);
    const float* lambda =
        c_.levels + size_t{token_} * c_.levels_stride + size_t{head_} * c_.level_count;
    for (uint64_t s = place_ + 1; s-- > 0;) ReadRow(s, lambda, query, sum);
    for (uint32_t page = 0; page < c_.pages.levels; ++page) {
      if (Exists(page)) ReadPage(page, lambda, query, sum);
    }
    float* out = c_.out.row(token_) + size_t{head_} * c_.padded_value;
    for (uint32_t e = 0; e < c_.padded_value; ++e) {
      const bool skips = c_.skip != nullptr && e < c_.value_dim;
      out[e] = sum[e] + (skips ? c_.skip[head_ * c_.value_dim + e] * InputValue()[e] : 0.0f);
    }
  }

  // Row s, and its transition for what lies before it; the gates are in the weights.
  void ReadRow(uint64_t s, const float* lambda, std::vector<float>& query,
               std::vector<float>& sum) const {
    float score = 0.0f;
    for (uint32_t d = 0; d < c_.padded_key; ++d) score += query[d] * Key(s)[d];
    score *= Beta(s);
    const float weight = lambda[FenwickLevel(BitWidth(place_ ^ s), c_.level_count)] *
                         std::exp(Decay(place_) - Decay(s)) * score;
    for (uint32_t e = 0; e < c_.padded_value; ++e) sum[e] += weight * Value(s)[e];
    if (!c_.delta) return;
    for (uint32_t d = 0; d < c_.padded_key; ++d) query[d] -= score * Key(s)[d];
  }

  void ReadPage(uint32_t page, const float* lambda, const std::vector<float>& query,
                std::vector<float>& sum) const {
    const std::byte* matrix = Page(table_[page]);
    for (uint32_t e = 0; e < c_.padded_value; ++e) {
      const float* decay = PageDecay(base_, e) + size_t{2} * page;
      float read = 0.0f;
      for (uint32_t d = 0; d < c_.padded_key; ++d) {
        read += query[d] * NumberAt(matrix, dtype(), size_t{e} * c_.padded_key + d);
      }
      sum[e] += lambda[LevelOfPage(page, c_.level_count)] *
                std::exp((Decay(place_) + decay[1]) + decay[0]) * read;
    }
  }

  void Fold() const {
    const uint32_t* next = table_ + c_.pages.levels;
    const uint32_t made = PageMadeBy(chunk_, c_.pages.levels);
    Matrix sum(elements(), 0.0f);
    for (uint32_t page = 0; page <= made; ++page) {
      if (!Exists(page)) continue;
      const Matrix old = Load(page);
      const float* decay = PageDecay(base_, 0) + size_t{2} * page;
      const float scale = std::exp(decay[1] + decay[0]);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += scale * old[i];
    }
    for (uint64_t s = 0; s < kChunk; ++s) Apply(s, true, sum);
    Store(sum, next[made]);
    for (uint32_t page = made + 1; page < c_.pages.levels && c_.delta; ++page) {
      if (!Exists(page)) continue;
      Matrix old = Load(page);
      for (uint64_t s = 0; s < kChunk; ++s) Apply(s, false, old);
      Store(old, next[page]);
    }
    for (uint32_t e = 0; e < c_.padded_value; e += 16) FoldDecays(made, e);
  }

  // One token's transition of a page. `made`: of the page that the fold makes, which takes the gate
  // and the write too.
  void Apply(uint64_t s, bool made, Matrix& m) const {
    const float gate = made ? std::exp(Gate(s)) : 1.0f;
    for (uint32_t e = 0; e < c_.padded_value; ++e) {
      float* row = m.data() + size_t{e} * c_.padded_key;
      float read = 0.0f;
      for (uint32_t d = 0; d < c_.padded_key && c_.delta; ++d) read += Key(s)[d] * row[d];
      const float value = made ? Beta(s) * Value(s)[e] : 0.0f;
      for (uint32_t d = 0; d < c_.padded_key; ++d) {
        row[d] = gate * (row[d] - Beta(s) * read * Key(s)[d]) + Key(s)[d] * value;
      }
    }
  }

  void FoldDecays(uint32_t made, uint32_t first) const {
    const float end = Decay(kChunk - 1);
    const uint32_t slot = BaseAfter(c_.rows, segment_, token_);
    for (uint32_t page = 0; page < c_.pages.levels; ++page) {
      const float* from = PageDecay(base_, first) + size_t{2} * page;
      float* to = PageDecay(slot, first) + size_t{2} * page;
      const bool lives_on = page > made && Exists(page);
      float high = lives_on ? from[0] : 0.0f, low = lives_on ? from[1] : 0.0f;
      if (lives_on) AddLogDecay(end, high, low);
      to[0] = high, to[1] = low;
    }
  }

  Matrix Load(uint32_t page) const {
    Matrix m(elements());
    for (size_t i = 0; i < m.size(); ++i) m[i] = NumberAt(Page(table_[page]), dtype(), i);
    return m;
  }
  void Store(const Matrix& m, uint32_t slot) const {
    for (size_t i = 0; i < m.size(); ++i) {
      const uint16_t bits = FloatToBFloat16(m[i]);
      if (c_.bf16_pages) {
        std::memcpy(Page(slot) + 2 * i, &bits, 2);
      } else {
        std::memcpy(Page(slot) + 4 * i, &m[i], 4);
      }
    }
  }

  const FenwickCall& c_;
  const DeviceSegment& segment_;
  const uint32_t head_, token_;
  const uint64_t place_, chunk_;
  const uint32_t base_;
  const uint32_t* const table_;  // before the chunk's fold
};

}  // namespace

void FakeDevice::Fenwick(const FenwickCall& whole) {
  FenwickByParts(whole, [this](const FenwickCall& call) {
    Do([=] {
      // Heads share rows of the tail, so all of them take a token before any takes the next.
      for (uint32_t s = 0; s < call.rows.segment_count; ++s) {
        const DeviceSegment& segment = call.rows.segments[s];
        for (uint32_t i = 0; i < segment.tokens; ++i) {
          for (uint32_t head = 0; head < call.heads; ++head) {
            FenwickToken(call, s, head, segment.first_token + i, segment.position + i).Run();
          }
        }
      }
    });
  });
}

}  // namespace rivulet
