// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The time mixing of RWKV-6 and RWKV-7 (TimeMixCall; time_mix.cuh has a head's state and what a
// token does to it, time_mix_decode.cu one token of each segment). A block has a head of a
// segment. A thread holds 16 channels of four columns of S in registers, and `lanes` adjacent
// threads have all channels. The tokens are walked one after the other: first those of the tail,
// whose rows are known, then the segment's. What a token does to S is the same in both, so a
// decoded token has the bits of a prompt's. Each number that comes from shared memory serves four
// columns: with one column a thread, these loads were the limit.
//
// Everything is fp32 arithmetic with written-out fusions; a sum over channels is four chains a
// lane, then a tree over the lanes, which depends on D alone.
//
// Bytes expected of a token: S once and a C-th of it written, the tail's rows, six inputs and one
// output. Replaying the tail costs 3 D E fused additions a row (RWKV-6: 2 D E), on average 8 rows a
// token.
#include "kernels/device/time_mix.cuh"

namespace rivulet::cuda {
namespace {

using namespace time_mix;

// A head of a segment of any length.
template <typename Row, typename State, bool kLowRank>
class HeadOfSegment : public Head<Row, State, kLowRank> {
 public:
  using Base = Head<Row, State, kLowRank>;
  using Base::Advance, Base::c_, Base::Component, Base::first_, Base::Fold, Base::Has, Base::head_,
      Base::KeepKeys, Base::KeepValues, Base::KeyColumns, Base::lane_, Base::LoadState, Base::rows_,
      Base::segment_, Base::StagedU, Base::StageTail, Base::tiling_, Base::Update, Base::Value,
      Base::ValueColumns, Base::ValuesAt;

  __device__ HeadOfSegment(const TimeMixCall& call, float* memory) : Base(call, memory) {}

  __device__ void Run() {
    if (segment_.tokens == 0) return AwaitLastKernel();
    for (first_ = 0; first_ < c_.value_dim; first_ += tiling_.columns) RunColumns();
    __syncthreads();
    const uint32_t warps = blockDim.x / 32;
    for (uint32_t i = threadIdx.x / 32; i < segment_.tokens; i += warps) {
      Finish(segment_.first_token + i);
    }
  }

 private:
  __device__ bool last_columns() const { return first_ + tiling_.columns >= c_.value_dim; }

  // --- the recurrence ----------------------------------------------------------------------------

  __device__ void RunColumns() {
    uint32_t place = static_cast<uint32_t>(segment_.position % kChunk);
    LoadState();
    __syncthreads();  // the rows of the columns before are no longer read
    StageTail(place);
    __syncthreads();
    for (uint32_t s = 0; s < place; ++s) Update(s, *ValuesAt(rows_.v, s), StagedU(s));
    if (first_ == 0) AwaitLastKernel();
    for (uint32_t done = 0; done < segment_.tokens;) {
      const uint32_t count = min(kChunk - place, segment_.tokens - done);
      RunPiece(place, count, done);
      done += count;
      place += count;
      if (place != kChunk) continue;
      Fold(segment_.first_token + done - 1, segment_.tokens - done < kChunk);
      place = 0;
    }
  }

  __device__ void RunPiece(uint32_t place, uint32_t count, uint32_t done) {
    __syncthreads();
    for (uint32_t i = threadIdx.x / 32; i < count; i += blockDim.x / 32) {
      StageToken(place + i, segment_.first_token + done + i);
    }
    __syncthreads();
    const bool keeps = place + count < kChunk;  // the segment ends in this chunk
    for (uint32_t i = 0; i < count; ++i) {
      RunToken(place + i, segment_.first_token + done + i, keeps);
    }
    if (keeps && last_columns()) KeepKeys(place, count);
  }

  __device__ void RunToken(uint32_t place, uint32_t token, bool keeps) {
    const float4 v = *ValuesAt(rows_.v, place);
    float4 u = {};
    const float4 o = Advance(place, v, u);
    if (lane_ != 0 || !Has(0)) return;
    float* const out = c_.out.data + ValueColumns(c_.out.stride, token) + Value();
#pragma unroll
    for (uint32_t c = 0; c < kColumns; ++c) {
      if (Value() + c < c_.value_dim) out[c] = Component(o, c);
    }
    if (keeps) KeepValues(place, v, u);
  }

  // --- a token's rows, by a warp -----------------------------------------------------------------

  __device__ void StageToken(uint32_t place, uint32_t token) {
    const float bonus = kLowRank ? StageLowRankKeys(place, token) : StagePlainKeys(place, token);
    if (threadIdx.x % 32 == 0) {
      c_.bonus_sum.data[size_t{token} * c_.bonus_sum.stride + head_] = bonus;
    }
    const uint32_t thread = threadIdx.x % 32;
    const float* const v = c_.v.data + ValueColumns(c_.v.stride, token) + first_;
    const float* const share = c_.share.data + ValueColumns(c_.share.stride, token) + first_;
    const size_t at = ValueColumns(c_.first_values.stride, token) + first_;
    float* const values = c_.values.data + ValueColumns(c_.values.stride, token) + first_;
    for (uint32_t e = thread; e < tiling_.columns; e += 32) {
      float x = 0.0f;
      if (first_ + e < c_.value_dim) {
        x = v[e];
        if (c_.share.data != nullptr) x += (c_.first_values.data[at + e] - x) * Sigmoid(share[e]);
        values[e] = x;
      }
      rows_.v[place * tiling_.columns + e] = Rounded<Row>(x);
    }
  }

  // Both give the token's Σ r ∘ k ∘ bonus.
  __device__ float StagePlainKeys(uint32_t place, uint32_t token) {
    const uint32_t thread = threadIdx.x % 32, row = place * tiling_.stride;
    const float* const bonuses = c_.bonus + size_t{head_} * c_.key_dim;
    const float *k = KeyColumns(c_.k, token), *r = KeyColumns(c_.r, token);
    const float* const decay = KeyColumns(c_.decay, token);
    float bonus = 0.0f;
    for (uint32_t d = thread; d < tiling_.stride; d += 32) {
      const bool real = d < c_.key_dim;
      const float key = real ? k[d] : 0.0f, query = real ? r[d] : 0.0f;
      if (real) bonus = fmaf(query * key, bonuses[d], bonus);
      rows_.k[row + d] = Rounded<Row>(key);
      rows_.w[row + d] = real ? expf(-expf(decay[d])) : 0.0f;
      rows_.r[row + d] = query;
    }
    return WarpSum(bonus);
  }

  __device__ float StageLowRankKeys(uint32_t place, uint32_t token) {
    const uint32_t thread = threadIdx.x % 32, row = place * tiling_.stride;
    const size_t weights = size_t{head_} * c_.key_dim;
    const float *k = KeyColumns(c_.k, token), *r = KeyColumns(c_.r, token);
    const float *decay = KeyColumns(c_.decay, token), *rate = KeyColumns(c_.rate, token);
    float squares = 0.0f;
    for (uint32_t d = thread; d < c_.key_dim; d += 32) {
      const float removed = k[d] * c_.removed[weights + d];
      squares = fmaf(removed, removed, squares);
    }
    const float scale = 1.0f / sqrtf(WarpSum(squares) + c_.key_eps);
    float bonus = 0.0f;
    for (uint32_t d = thread; d < tiling_.stride; d += 32) {
      float key = 0.0f, removed = 0.0f, share = 0.0f, weight = 0.0f, query = 0.0f;
      if (d < c_.key_dim) {
        share = Sigmoid(rate[d]);
        removed = k[d] * c_.removed[weights + d] * scale;
        key = k[d] + k[d] * (share - 1.0f) * c_.replaced[weights + d];
        weight = expf(kFastestTimeMixDecay * Sigmoid(decay[d]));
        query = r[d];
        bonus = fmaf(query * key, c_.bonus[weights + d], bonus);
      }
      rows_.k[row + d] = Rounded<Row>(key);
      rows_.b[row + d] = Rounded<Row>(removed * share);
      rows_.w[row + d] = weight;
      rows_.a[row + d] = -removed;
      rows_.r[row + d] = query;
    }
    return WarpSum(bonus);
  }

  // y of a token, by a warp.
  __device__ void Finish(uint32_t token) {
    const uint32_t thread = threadIdx.x % 32, width = c_.value_dim, column = head_ * width;
    const float* const o = c_.out.data + ValueColumns(c_.out.stride, token);
    const float* const v = c_.values.data + ValueColumns(c_.values.stride, token);
    const float* const gate = c_.gate.data + ValueColumns(c_.gate.stride, token);
    const float bonus = c_.bonus_sum.data[size_t{token} * c_.bonus_sum.stride + head_];
    // RWKV-6 norms the bonus too, RWKV-7 adds it behind the norm.
    const auto read = [&](uint32_t e) { return kLowRank ? o[e] : o[e] + bonus * v[e]; };
    const auto count = static_cast<float>(width);
    float sum = 0.0f, squares = 0.0f;
    for (uint32_t e = thread; e < width; e += 32) sum += read(e);
    const float mean = WarpSum(sum) / count;
    for (uint32_t e = thread; e < width; e += 32) {
      squares = fmaf(read(e) - mean, read(e) - mean, squares);
    }
    const float scale = 1.0f / sqrtf(WarpSum(squares) / count + c_.norm_eps);
    for (uint32_t e = thread; e < width; e += 32) {
      const float normed =
          (read(e) - mean) * scale * c_.norm_weight[column + e] + c_.norm_bias[column + e];
      const float gated = kLowRank ? (normed + bonus * v[e]) * gate[e] : normed * Silu(gate[e]);
      StoreOperand(c_.y, token, column + e, gated);
    }
    if (head_ != 0) return;
    for (uint32_t i = c_.heads * width + thread; i < c_.y.columns; i += 32) {
      StoreOperand(c_.y, token, i, 0.0f);
    }
  }
};

template <typename Row, typename State, bool kLowRank>
__global__ void __launch_bounds__(kMostThreads)
    TimeMixKernel(const __grid_constant__ TimeMixCall call) {
  extern __shared__ __align__(16) float shared_rows[];
  AllowNextKernel();
  HeadOfSegment<Row, State, kLowRank>(call, shared_rows).Run();
}

template <typename Row, typename State, bool kLowRank>
void Launch(const TimeMixCall& call, const LaunchContext& context) {
  const auto kernel = TimeMixKernel<Row, State, kLowRank>;
  static const cudaError_t prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10);
  context.Check(prepared);
  const Tiling tiling(call.padded_key, call.value_dim);
  context.Run(kernel, dim3(call.heads, call.rows.segment_count), tiling.threads(),
              tiling.SharedBytes(kLowRank), call);
}

template <typename Row, typename State>
void LaunchForForm(const TimeMixCall& call, const LaunchContext& context) {
  call.form == TimeMixForm::kRwkv7 ? Launch<Row, State, true>(call, context)
                                   : Launch<Row, State, false>(call, context);
}

template <typename Row>
void LaunchForState(const TimeMixCall& call, const LaunchContext& context) {
  call.bf16_state ? LaunchForForm<Row, bf16>(call, context)
                  : LaunchForForm<Row, float>(call, context);
}

}  // namespace

void LaunchTimeMix(const TimeMixCall& call, bool fp32_rows, const LaunchContext& context) {
  if (call.padded_key > kMostTimeMixKeys) return context.Check(cudaErrorInvalidValue);
  if (LaunchTimeMixDecode(call, fp32_rows, context)) return;
  fp32_rows ? LaunchForState<float>(call, context) : LaunchForState<bf16>(call, context);
}

}  // namespace rivulet::cuda
