// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "kernels/device/fake_device.h"
#include "kernels/device/fake_operations.h"
#include "kernels/device/rwkv_operations.h"

namespace rivulet {
namespace {

using namespace fake;

float* TailOf(const DeviceSlots& slots, const DeviceSegment& segment, size_t offset) {
  return reinterpret_cast<float*>(slots.tails + segment.tail * slots.tail_stride + offset);
}
std::byte* BaseAt(const DeviceSlots& slots, uint32_t slot, size_t offset) {
  return slots.bases + slot * slots.base_stride + offset;
}

// One token and channel of a token shift.
void ShiftToken(const TokenShiftCall& call, const DeviceSegment& segment, uint32_t token,
                uint64_t position, uint32_t channel) {
  const uint64_t place = position % kChunk;
  float* const tail = TailOf(call.slots, segment, call.tail_offset) + channel;
  const auto before = [&](uint32_t slot) {
    return reinterpret_cast<float*>(BaseAt(call.slots, slot, call.before_offset)) + channel;
  };
  const float x = OperandAt(call.x, token, channel);
  float last = 0.0f;
  if (place != 0) last = tail[(place - 1) * call.padded];
  if (place == 0 && position != 0) last = *before(BaseOf(call.rows, segment, position));
  tail[place * call.padded] = x;
  if (place + 1 == kChunk) *before(BaseAfter(call.rows, segment, token)) = x;
  if (call.difference.data != nullptr) call.difference.row(token)[channel] = last - x;
  for (uint32_t m = 0; m < call.mixtures; ++m) {
    StoreOperand(call.y[m], token, channel, x + (last - x) * call.mix[m][channel]);
  }
}

// One token of a head.
class TimeMixHead {
 public:
  TimeMixHead(const TimeMixCall& call, const DeviceSegment& segment, uint32_t head, uint32_t token,
              uint64_t position)
      : c_(call),
        segment_(segment),
        head_(head),
        token_(token),
        low_rank_(call.form == TimeMixForm::kRwkv7),
        place_(position % kChunk),
        fresh_(position < kChunk),
        base_(BaseOf(call.rows, segment, position)),
        state_(size_t{call.value_dim} * call.key_dim) {}

  void Run() {
    MakeKeys();
    MakeValues();
    LoadState();
    for (uint64_t s = 0; s < place_; ++s) Update(s);
    Finish(low_rank_ ? ReadAfterUpdate() : ReadBeforeUpdate());
    if (place_ + 1 == kChunk) StoreState();
  }

 private:
  uint32_t parts() const { return low_rank_ ? 2 : 1; }  // of a row of keys or values
  float* KeyRow(uint64_t place) const {
    return TailOf(c_.slots, segment_, c_.key_offset) +
           (head_ * kChunk + place) * parts() * c_.padded_key;
  }
  float* ValueRow(uint64_t place) const {
    return TailOf(c_.slots, segment_, c_.value_offset) +
           (head_ * kChunk + place) * parts() * c_.padded_value;
  }
  float* DecayRow(uint64_t place) const {
    return TailOf(c_.slots, segment_, c_.decay_offset) + (head_ * kChunk + place) * c_.padded_key;
  }
  const float* KeysOf(const ConstFloatMatrix& x) const {
    return x.row(token_) + size_t{head_} * c_.key_dim;
  }
  const float* ValuesOf(const ConstFloatMatrix& x) const {
    return x.row(token_) + size_t{head_} * c_.value_dim;
  }

  std::vector<float> ReadAfterUpdate() {
    for (uint32_t e = 0; e < c_.value_dim; ++e) ValueRow(place_)[c_.padded_value + e] = Dot(a_, e);
    Update(place_);
    return Read();
  }
  std::vector<float> ReadBeforeUpdate() {
    std::vector<float> o = Read();
    for (uint32_t e = 0; e < c_.value_dim; ++e) o[e] += bonus_ * ValueRow(place_)[e];
    Update(place_);
    return o;
  }
  std::vector<float> Read() {
    std::vector<float> o(c_.value_dim);
    for (uint32_t e = 0; e < c_.value_dim; ++e) o[e] = Dot(r_, e);
    return o;
  }

  void MakeKeys() { low_rank_ ? MakeLowRankKeys() : MakePlainKeys(); }
  void MakePlainKeys() {
    for (uint32_t d = 0; d < c_.key_dim; ++d) {
      const float k = KeysOf(c_.k)[d], r = KeysOf(c_.r)[d];
      KeyRow(place_)[d] = k;
      DecayRow(place_)[d] = std::exp(-std::exp(KeysOf(c_.decay)[d]));
      r_.push_back(r);
      bonus_ += r * k * c_.bonus[size_t{head_} * c_.key_dim + d];
    }
  }
  void MakeLowRankKeys() {
    const size_t first = size_t{head_} * c_.key_dim;
    const float *k = KeysOf(c_.k), *r = KeysOf(c_.r);
    float squares = 0.0f;
    for (uint32_t d = 0; d < c_.key_dim; ++d) {
      const float removed = k[d] * c_.removed[first + d];
      squares += removed * removed;
    }
    const float scale = 1.0f / std::sqrt(squares + c_.key_eps);
    for (uint32_t d = 0; d < c_.key_dim; ++d) {
      const float rate = Function(Activation::kSigmoid, KeysOf(c_.rate)[d]);
      const float removed = k[d] * c_.removed[first + d] * scale;
      const float added = k[d] + k[d] * (rate - 1.0f) * c_.replaced[first + d];
      KeyRow(place_)[d] = added;
      KeyRow(place_)[c_.padded_key + d] = removed * rate;
      DecayRow(place_)[d] =
          std::exp(kFastestTimeMixDecay * Function(Activation::kSigmoid, KeysOf(c_.decay)[d]));
      a_.push_back(-removed);
      r_.push_back(r[d]);
      bonus_ += r[d] * added * c_.bonus[first + d];
    }
  }

  void MakeValues() {
    float* const values = c_.values.row(token_) + size_t{head_} * c_.value_dim;
    for (uint32_t e = 0; e < c_.value_dim; ++e) {
      float v = ValuesOf(c_.v)[e];
      if (c_.share.data != nullptr) {
        v += (ValuesOf(c_.first_values)[e] - v) *
             Function(Activation::kSigmoid, ValuesOf(c_.share)[e]);
      }
      values[e] = ValueRow(place_)[e] = v;
    }
  }

  float& At(uint32_t e, uint32_t d) { return state_[size_t{e} * c_.key_dim + d]; }
  float Dot(const std::vector<float>& x, uint32_t e) {
    float sum = 0.0f;
    for (uint32_t d = 0; d < c_.key_dim; ++d) sum += x[d] * At(e, d);
    return sum;
  }
  void Update(uint64_t place) {
    const float *k = KeyRow(place), *v = ValueRow(place), *w = DecayRow(place);
    const float *b = k + c_.padded_key, *u = v + c_.padded_value;
    for (uint32_t e = 0; e < c_.value_dim; ++e) {
      for (uint32_t d = 0; d < c_.key_dim; ++d) {
        const float kept = w[d] * At(e, d);
        At(e, d) = (low_rank_ ? kept + b[d] * u[e] : kept) + k[d] * v[e];
      }
    }
  }

  std::byte* Number(uint32_t slot, uint32_t e, uint32_t d) const {
    const size_t index = (size_t{head_} * c_.padded_value + e) * c_.padded_key + d;
    return BaseAt(c_.slots, slot, c_.state_offset) + index * (c_.bf16_state ? 2 : 4);
  }
  void LoadState() {
    const DType dtype = c_.bf16_state ? DType::kBFloat16 : DType::kFloat32;
    for (uint32_t e = 0; e < c_.value_dim; ++e) {
      for (uint32_t d = 0; d < c_.key_dim; ++d) {
        At(e, d) = fresh_ ? 0.0f : NumberAt(Number(base_, e, d), dtype, 0);
      }
    }
  }
  void StoreState() {
    const uint32_t slot = BaseAfter(c_.rows, segment_, token_);
    for (uint32_t e = 0; e < c_.value_dim; ++e) {
      for (uint32_t d = 0; d < c_.key_dim; ++d) {
        StoreNumber(c_.bf16_state, At(e, d), Number(slot, e, d));
      }
    }
  }

  void Finish(const std::vector<float>& o) {
    const auto count = static_cast<float>(c_.value_dim);
    float mean = 0.0f, squares = 0.0f;
    for (const float x : o) mean += x / count;
    for (const float x : o) squares += (x - mean) * (x - mean);
    const float scale = 1.0f / std::sqrt(squares / count + c_.norm_eps);
    const float* const v = ValueRow(place_);
    for (uint32_t e = 0; e < c_.value_dim; ++e) {
      const uint32_t column = head_ * c_.value_dim + e;
      const float normed = (o[e] - mean) * scale * c_.norm_weight[column] + c_.norm_bias[column];
      const float gate = ValuesOf(c_.gate)[e];
      const float y =
          low_rank_ ? (normed + bonus_ * v[e]) * gate : normed * Function(Activation::kSilu, gate);
      StoreOperand(c_.y, token_, column, y);
    }
  }

  const TimeMixCall& c_;
  const DeviceSegment& segment_;
  const uint32_t head_, token_;
  const bool low_rank_;
  const uint64_t place_;
  const bool fresh_;
  const uint32_t base_;
  std::vector<float> state_;  // [E, D]
  std::vector<float> a_, r_;  // [D]
  float bonus_ = 0.0f;
};

}  // namespace

void FakeDevice::TokenShift(const TokenShiftCall& call) {
  Do([=] {
    ForEachToken(call.rows, [&](const DeviceSegment& segment, uint32_t token, uint64_t position) {
      for (uint32_t i = 0; i < call.channels; ++i) ShiftToken(call, segment, token, position, i);
      for (uint32_t m = 0; m < call.mixtures; ++m) {
        for (uint32_t i = call.channels; i < call.y[m].columns; ++i) {
          StoreOperand(call.y[m], token, i, 0.0f);
        }
      }
    });
  });
}

void FakeDevice::MixOwn(const OwnMixturesCall& call) {
  Do([=] {
    for (uint32_t t = 0; t < call.x.rows; ++t) {
      for (uint32_t m = 0; m < call.mixtures; ++m) {
        const size_t first = size_t{m} * call.channels;
        for (uint32_t i = 0; i < call.y[m].columns; ++i) {
          float y = 0.0f;
          if (i < call.channels) {
            y = OperandAt(call.x, t, i) +
                call.difference.row(t)[i] * (call.weights.row(t)[first + i] + call.bias[first + i]);
          }
          StoreOperand(call.y[m], t, i, y);
        }
      }
    }
  });
}

void FakeDevice::TimeMix(const TimeMixCall& call) {
  Do([=] {
    ForEachToken(call.rows, [&](const DeviceSegment& segment, uint32_t token, uint64_t position) {
      for (uint32_t head = 0; head < call.heads; ++head) {
        TimeMixHead(call, segment, head, token, position).Run();
      }
      for (uint32_t i = call.heads * call.value_dim; i < call.y.columns; ++i) {
        StoreOperand(call.y, token, i, 0.0f);
      }
    });
  });
}

}  // namespace rivulet
