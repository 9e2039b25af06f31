// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The time mixing of one token of each segment: what time_mix.cu does, with everything that need
// not wait done first. The order of every sum is that of time_mix.cu, so the bits are the same.
//
// Before the wait a block reads the state and the tail, replays the tail, and has the head's
// weights in registers. After it one warp asks for the token's keys and another one for its decays,
// its values and its gate, each for all of them at once; the output of the recurrence goes to the
// norm through shared memory. There are two barriers. With few blocks a rehearsal comes before the
// replay, so that it may change the state; with many, several share a processor, and some of them
// wait for memory while others compute.
//
// The state and the rows of the tail before the token's place are written by the block itself
// alone, after it has read them. r, k, v, decays, rates, gates, shares and first values come from
// kernels of the step and are read after the wait.
#include <algorithm>

#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/rehearsal.cuh"
#include "kernels/device/time_mix.cuh"

namespace rivulet::cuda {
namespace {

using namespace time_mix;

// Of a row, numbers d, d + 32, ... that a lane has: up to 128 channels or columns with few blocks,
// 64 with many.
constexpr uint32_t NumbersOf(bool many) { return many ? 2 : 4; }
// Of a block where there are many, and how many then share a processor: a block waits most of its
// time, so what counts is how many others work meanwhile.
constexpr uint32_t kManyThreads = 64, kManyBlocks = 6;

template <typename Row, typename State, bool kLowRank, bool kMany>
class OneToken : public Head<Row, State, kLowRank> {
 public:
  using Base = Head<Row, State, kLowRank>;
  using Base::c_, Base::column_, Base::head_, Base::lane_, Base::rows_, Base::segment_,
      Base::tiling_;
  static constexpr uint32_t kNumbers = NumbersOf(kMany);

  __device__ OneToken(const TimeMixCall& call, float* memory)
      : Base(call, memory),
        thread_(threadIdx.x % 32),
        warp_(threadIdx.x / 32),
        values_warp_(blockDim.x > 32 ? 1 : 0),
        token_(segment_.first_token),
        place_(static_cast<uint32_t>(segment_.position % kChunk)) {
    o_ = (kLowRank ? rows_.u : rows_.v) + kChunk * tiling_.columns;
    bonus_ = o_ + tiling_.columns;
  }

  static size_t SharedBytes(const Tiling& tiling) {
    return tiling.SharedBytes(kLowRank) + sizeof(float) * (tiling.columns + 4);
  }

  __device__ void Run(uint32_t rehearsed) {
    if (segment_.tokens == 0) return AwaitLastKernel();
    if (threadIdx.x == 0 && segment_.position >= kChunk) FetchState();
    this->StageTail(place_);
    TakeConstants();
    this->ForEachFour([](float4& s, uint32_t, bool) { s = {0.0f, 0.0f, 0.0f, 0.0f}; });
    RunRehearsed(
        rehearsed, [&] { Replay(); }, [&](bool real) { RunToken(real); });
    if (place_ + 1 == kChunk) this->Fold(token_, true);
  }

 private:
  // --- before the kernel before has ended --------------------------------------------------------

  // Into L2, for the replay.
  __device__ void FetchState() const {
    FetchToL2(this->Matrix(segment_.base_in),
              static_cast<uint32_t>(sizeof(State)) * c_.padded_key * c_.padded_value);
  }

  __device__ void Replay() {
    this->LoadState();
    __syncthreads();
    for (uint32_t s = 0; s < place_; ++s) {
      this->Update(s, *this->ValuesAt(rows_.v, s), this->StagedU(s));
    }
  }

  // The weights of the keys in the warp that takes them, and those of the norm in the other one.
  __device__ void TakeConstants() {
    if (warp_ == 0) {
      const size_t first = size_t{head_} * c_.key_dim;
      TakeRow(c_.bonus + first, c_.key_dim, bonus_weights_);
      if constexpr (kLowRank) TakeRow(c_.removed + first, c_.key_dim, removed_);
      if constexpr (kLowRank) TakeRow(c_.replaced + first, c_.key_dim, replaced_);
    }
    if (warp_ != values_warp_) return;
    const size_t first = size_t{head_} * c_.value_dim;
    TakeRow(c_.norm_weight + first, c_.value_dim, norm_weight_);
    TakeRow(c_.norm_bias + first, c_.value_dim, norm_bias_);
  }
  __device__ void TakeRow(const float* row, uint32_t count, float (&numbers)[kNumbers]) const {
#pragma unroll
    for (uint32_t j = 0; j < kNumbers; ++j) {
      const uint32_t i = thread_ + 32 * j;
      numbers[j] = i < count ? row[i] : 0.0f;
    }
  }
  // The same of what a kernel of the step writes.
  __device__ void AskForRow(const float* row, uint32_t count, float (&numbers)[kNumbers]) const {
#pragma unroll
    for (uint32_t j = 0; j < kNumbers; ++j) {
      const uint32_t i = thread_ + 32 * j;
      numbers[j] = i < count ? ReadLate(row + i) : 0.0f;
    }
  }

  // --- the token ---------------------------------------------------------------------------------

  __device__ void RunToken(bool real) {
    if (warp_ == 0) TakeKeys();
    if (warp_ == values_warp_) TakeValues(real);
    __syncthreads();
    const float4 v = *this->ValuesAt(rows_.v, place_);
    float4 u = {};
    const float4 o = this->Advance(place_, v, u);
    if (lane_ == 0) *reinterpret_cast<float4*>(o_ + column_) = o;
    if (real && place_ + 1 < kChunk) {
      if (lane_ == 0 && this->Has(0)) this->KeepValues(place_, v, u);
      this->KeepKeys(place_, 1);
    }
    __syncthreads();
    if (warp_ == values_warp_) Finish(real);
    if (!real) __syncthreads();  // before the token is taken again
  }

  __device__ void TakeKeys() {
    float k[kNumbers], r[kNumbers], rate[kNumbers], bonus;
    AskForRow(this->KeyColumns(c_.k, token_), c_.key_dim, k);
    AskForRow(this->KeyColumns(c_.r, token_), c_.key_dim, r);
    if constexpr (kLowRank) {
      AskForRow(this->KeyColumns(c_.rate, token_), c_.key_dim, rate);
      bonus = StageLowRank(k, r, rate);
    } else {
      bonus = StagePlain(k, r);
    }
    if (thread_ == 0) *bonus_ = bonus;
  }

  // Both give the token's Σ r ∘ k ∘ bonus.
  __device__ float StagePlain(const float (&k)[kNumbers], const float (&r)[kNumbers]) const {
    const uint32_t row = place_ * tiling_.stride;
    float bonus = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < kNumbers; ++j) {
      const uint32_t d = thread_ + 32 * j;
      if (d < c_.key_dim) bonus = fmaf(r[j] * k[j], bonus_weights_[j], bonus);
      if (d >= tiling_.stride) continue;
      rows_.k[row + d] = Rounded<Row>(k[j]);
      rows_.r[row + d] = r[j];
    }
    return WarpSum(bonus);
  }

  __device__ float StageLowRank(const float (&k)[kNumbers], const float (&r)[kNumbers],
                                const float (&rate)[kNumbers]) const {
    const uint32_t row = place_ * tiling_.stride;
    float squares = 0.0f, bonus = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < kNumbers; ++j) {
      const float removed = k[j] * removed_[j];
      if (thread_ + 32 * j < c_.key_dim) squares = fmaf(removed, removed, squares);
    }
    const float scale = 1.0f / sqrtf(WarpSum(squares) + c_.key_eps);
#pragma unroll
    for (uint32_t j = 0; j < kNumbers; ++j) {
      const uint32_t d = thread_ + 32 * j;
      float key = 0.0f, removed = 0.0f, share = 0.0f;
      if (d < c_.key_dim) {
        share = Sigmoid(rate[j]);
        removed = k[j] * removed_[j] * scale;
        key = k[j] + k[j] * (share - 1.0f) * replaced_[j];
        bonus = fmaf(r[j] * key, bonus_weights_[j], bonus);
      }
      if (d >= tiling_.stride) continue;
      rows_.k[row + d] = Rounded<Row>(key);
      rows_.b[row + d] = Rounded<Row>(removed * share);
      rows_.a[row + d] = -removed;
      rows_.r[row + d] = r[j];
    }
    return WarpSum(bonus);
  }

  __device__ const float* Columns(const ConstFloatMatrix& x) const {
    return x.data + this->ValueColumns(x.stride, token_);
  }

  __device__ void TakeValues(bool real) {
    float decay[kNumbers], share[kNumbers], first[kNumbers];
    const bool mixes = c_.share.data != nullptr;
    AskForRow(this->KeyColumns(c_.decay, token_), c_.key_dim, decay);
    AskForRow(Columns(c_.v), c_.value_dim, v_);
    AskForRow(Columns(c_.gate), c_.value_dim, gate_);
    AskForRow(Columns(mixes ? c_.share : c_.v), c_.value_dim, share);
    AskForRow(Columns(mixes ? c_.first_values : c_.v), c_.value_dim, first);
    StageDecays(decay);
    float* const values = c_.values.data + this->ValueColumns(c_.values.stride, token_);
#pragma unroll
    for (uint32_t j = 0; j < kNumbers; ++j) {
      const uint32_t e = thread_ + 32 * j;
      if (mixes && e < c_.value_dim) v_[j] += (first[j] - v_[j]) * Sigmoid(share[j]);
      if (real && e < c_.value_dim) values[e] = v_[j];
      if (e < tiling_.columns) rows_.v[place_ * tiling_.columns + e] = Rounded<Row>(v_[j]);
    }
  }

  __device__ void StageDecays(const float (&decay)[kNumbers]) const {
#pragma unroll
    for (uint32_t j = 0; j < kNumbers; ++j) {
      const uint32_t d = thread_ + 32 * j;
      float weight = 0.0f;
      if (d < c_.key_dim) {
        weight = expf(kLowRank ? kFastestTimeMixDecay * Sigmoid(decay[j]) : -expf(decay[j]));
      }
      if (d < tiling_.stride) rows_.w[place_ * tiling_.stride + d] = weight;
    }
  }

  // y.
  __device__ void Finish(bool real) const {
    const uint32_t width = c_.value_dim;
    const auto count = static_cast<float>(width);
    const float bonus = *bonus_;
    float x[kNumbers], sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < kNumbers; ++j) {
      const uint32_t e = thread_ + 32 * j;
      if (e >= width) continue;
      x[j] = kLowRank ? o_[e] : o_[e] + bonus * v_[j];
      sum += x[j];
    }
    const float mean = WarpSum(sum) / count;
#pragma unroll
    for (uint32_t j = 0; j < kNumbers; ++j) {
      if (thread_ + 32 * j < width) squares = fmaf(x[j] - mean, x[j] - mean, squares);
    }
    const float scale = 1.0f / sqrtf(WarpSum(squares) / count + c_.norm_eps);
#pragma unroll
    for (uint32_t j = 0; j < kNumbers; ++j) {
      if (thread_ + 32 * j >= width) continue;
      const float normed = (x[j] - mean) * scale * norm_weight_[j] + norm_bias_[j];
      float y;
      if constexpr (kLowRank) {
        y = (normed + bonus * v_[j]) * gate_[j];
      } else {
        y = normed * Silu(gate_[j]);
      }
      asm volatile("" ::"f"(y));  // computed in a rehearsal, too
      if (real) StoreOperand(c_.y, token_, head_ * width + thread_ + 32 * j, y);
    }
    if (head_ != 0 || !real) return;
    for (uint32_t i = c_.heads * width + thread_; i < c_.y.columns; i += 32) {
      StoreOperand(c_.y, token_, i, 0.0f);
    }
  }

  const uint32_t thread_, warp_;  // of a warp; of the block
  const uint32_t values_warp_;    // which one has the token's values, and finishes
  const uint32_t token_, place_;
  float *o_, *bonus_;  // in shared memory: [columns], and the token's Σ r ∘ k ∘ bonus
  float bonus_weights_[kNumbers], removed_[kNumbers], replaced_[kNumbers];
  float norm_weight_[kNumbers], norm_bias_[kNumbers];
  float v_[kNumbers], gate_[kNumbers];
};

template <typename Row, typename State, bool kLowRank, bool kMany>
__global__ void __launch_bounds__(kMany ? kManyThreads : kMostThreads, kMany ? kManyBlocks : 1)
    TimeMixDecodeKernel(const __grid_constant__ TimeMixCall call, uint32_t rehearsed) {
  extern __shared__ __align__(16) float shared_rows[];
  AllowNextKernel();
  OneToken<Row, State, kLowRank, kMany>(call, shared_rows).Run(rehearsed);
}

// So few blocks that two of them share a processor at most.
bool IsFew(const TimeMixCall& call, const LaunchContext& context) {
  return call.heads * call.rows.segment_count <= 2 * static_cast<uint32_t>(context.processors);
}

template <typename Row, typename State, bool kLowRank, bool kMany>
void Launch(const TimeMixCall& call, const Tiling& tiling, const LaunchContext& context) {
  const auto kernel = TimeMixDecodeKernel<Row, State, kLowRank, kMany>;
  static const cudaError_t prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10);
  context.Check(prepared);
  const dim3 grid(call.heads, call.rows.segment_count);
  context.Run(kernel, grid, tiling.threads(),
              OneToken<Row, State, kLowRank, kMany>::SharedBytes(tiling), call,
              context.RehearsedBlocks(grid.x * grid.y));
}

template <typename Row, typename State, bool kLowRank>
void LaunchForCount(const TimeMixCall& call, const Tiling& tiling, const LaunchContext& context) {
  IsFew(call, context) ? Launch<Row, State, kLowRank, false>(call, tiling, context)
                       : Launch<Row, State, kLowRank, true>(call, tiling, context);
}

template <typename Row, typename State>
void LaunchForForm(const TimeMixCall& call, const Tiling& tiling, const LaunchContext& context) {
  call.form == TimeMixForm::kRwkv7 ? LaunchForCount<Row, State, true>(call, tiling, context)
                                   : LaunchForCount<Row, State, false>(call, tiling, context);
}

template <typename Row>
void LaunchForState(const TimeMixCall& call, const Tiling& tiling, const LaunchContext& context) {
  call.bf16_state ? LaunchForForm<Row, bf16>(call, tiling, context)
                  : LaunchForForm<Row, float>(call, tiling, context);
}

}  // namespace

bool LaunchTimeMixDecode(const TimeMixCall& call, bool fp32_rows, const LaunchContext& context) {
  const Tiling tiling(call.padded_key, call.value_dim);
  const uint32_t widest = std::max(tiling.stride, tiling.columns);
  const bool one_turn = call.value_dim <= tiling.columns;
  const bool many = !IsFew(call, context);
  if (many && tiling.threads() > kManyThreads) return false;
  if (!call.rows.single || widest > 32 * NumbersOf(many) || !one_turn) return false;
  fp32_rows ? LaunchForState<float>(call, tiling, context)
            : LaunchForState<bf16>(call, tiling, context);
  return true;
}

}  // namespace rivulet::cuda
