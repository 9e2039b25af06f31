// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The warp of sums_stream.cu that brings everything of a piece but its state and its keys.
#ifndef RIVULET_KERNELS_DEVICE_SUMS_STREAM_NUMBERS_CUH_
#define RIVULET_KERNELS_DEVICE_SUMS_STREAM_NUMBERS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/sums_stream.cuh"

namespace rivulet::cuda {

// By copies of 16 bytes of all lanes. What a lane copies of every piece is worked out once. The
// tail's values of the first piece are asked for before the kernel before has ended: no kernel of
// the step writes rows of earlier tokens (README.md#overlap).
template <typename Form>
class NumberWarp : public StreamWork<Form> {
  using Base = StreamWork<Form>;
  using Base::barriers_;
  using Base::c_;
  using Base::l_;
  using Base::lane_;

 public:
  __device__ NumberWarp(const RecurCall& call, const StreamLayout& layout, std::byte* memory)
      : Base(call, layout, memory) {
    ChooseValuesOfLane();
    ChooseNumberOfLane();
  }

  __device__ void Run() {
    bool waited = false;
    for (Ring stage;; stage.Advance(l_.stages)) {
      WaitBarrier(&barriers_.begun[stage.at], stage.parity);
      const StageHeader header = Base::Header(stage.at);
      if (header.last == 0) {
        Base::Take(header);
        CopyValues(Base::Stage(stage.at));
        if (!waited) AwaitLastKernel();
        waited = true;
        CopyNumbers(Base::Stage(stage.at));
      }
      ArriveAfterCopies(&barriers_.full[stage.at]);
      if (header.last != 0) return;
    }
  }

 private:
  // Of the tail.
  __device__ void CopyValues(std::byte* stage) const {
    if (Base::Empty()) return;
    Base::CopyRows(stage + l_.v, (l_.values + kPad) * 2, this->ValueRow(0), c_.padded_value,
                   l_.value_shift, this->width_ / 8, lane_, 32);
  }

  __device__ void CopyNumbers(std::byte* stage) const {
    if (Base::Empty()) return;
    const size_t token = Base::Token();
    if (values_.from != nullptr && lane_ % 16 * 4 < this->width_) {
      const uint32_t unit =
          lane_ < 16 ? Base::ValueOf() * c_.v_head_stride : this->unit_ * c_.value_dim;
      CopyAsync(stage + values_.to,
                values_.from + token * values_.stride + (unit + this->first_) * 4);
    }
    if (gates_.from != nullptr && lane_ % 16 * 4 < this->width_) {
      const uint32_t column = this->unit_ * c_.value_dim + this->first_;
      CopyAsync(stage + gates_.to, gates_.from + token * gates_.stride + column * 4);
    }
    if (number_.from != nullptr) {
      const bool of_tail = lane_ < kChunk / 4;
      const size_t row = of_tail ? this->segment_.tail : token;
      const uint32_t unit = of_tail ? this->unit_ * kChunk : this->unit_ / 4 * 4;
      CopyAsync(stage + number_.to, number_.from + row * number_.stride + unit * 4);
    }
  }

  // What a lane copies of each piece: 16 bytes at `from`, with so many bytes between rows.
  struct OfLane {
    const std::byte* from = nullptr;  // null: none
    size_t stride = 0;
    uint32_t to = 0;  // in a stage
  };
  // By half of the warp each: the token's values and their skip weights, and its gates and their
  // weights.
  __device__ void ChooseValuesOfLane() {
    static_assert(kMostConsumers * Form::kTiles * 16 <= 64, "a lane has one piece of each");
    const uint32_t i = lane_ % 16 * 4;
    if (lane_ < 16) {
      values_ = {reinterpret_cast<const std::byte*>(c_.v + i), c_.v_stride * sizeof(float),
                 l_.token_v + i * 4};
    } else if (c_.skip != nullptr) {
      values_ = {reinterpret_cast<const std::byte*>(c_.skip + i), 0, l_.skip + i * 4};
    }
    const GatedOutputs& gated = c_.gated;
    if (gated.gate == nullptr) return;
    if (lane_ < 16) {
      gates_ = {reinterpret_cast<const std::byte*>(gated.gate + i),
                gated.gate_stride * sizeof(float), l_.gate + i * 4};
    } else {
      gates_ = {reinterpret_cast<const std::byte*>(gated.weight + i), 0, l_.weight + i * 4};
    }
  }
  // The unit's decays by four lanes, and its numbers, each with its neighbours, by one.
  __device__ void ChooseNumberOfLane() {
    const bool has_decays = !Form::kChannel && c_.decay != Decay::kNone;
    const bool cumulates = has_decays && c_.constant == nullptr;
    const auto of_token = [](const float* numbers, uint32_t stride, uint32_t to) {
      return OfLane{reinterpret_cast<const std::byte*>(numbers), stride * sizeof(float), to};
    };
    if (lane_ < kChunk / 4 && has_decays) {
      number_ = of_token(c_.constant + lane_ * 4, 0, l_.decay + lane_ * 16);
      if (cumulates) {
        number_.from = c_.slots.tails + c_.decay_offset + lane_ * 16;
        number_.stride = c_.slots.tail_stride;
      }
    } else if (lane_ == 4 && cumulates) {
      number_ = of_token(c_.g, c_.g_stride, l_.step);
    } else if (lane_ == 5 && c_.rate != nullptr) {
      number_ = of_token(c_.rate, 0, l_.rate);
    } else if (lane_ == 6 && c_.delta) {
      number_ = of_token(c_.beta, c_.beta_stride, l_.beta);
    }
  }

  OfLane values_, gates_, number_;
};

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SUMS_STREAM_NUMBERS_CUH_
