// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The time mixing of RWKV-6 and RWKV-7 (TimeMixCall; time_mix.cuh has the work on a head,
// time_mix_decode.cu one token of each of few segments). A block has a head of a segment. A thread
// holds 16 channels of four columns of S in registers, and `lanes` adjacent threads have all
// channels. The tokens are walked one after the other: first those of the tail, whose rows are
// known, then the segment's. What a token does to S is the same in both, so a decoded token has the
// bits of a prompt's. Each number that comes from shared memory serves four columns: with one
// column a thread, these loads were the limit.
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

template <typename Row, typename State, bool kLowRank>
__global__ void __launch_bounds__(kMostThreads)
    TimeMixKernel(const __grid_constant__ TimeMixCall call) {
  extern __shared__ __align__(16) float shared_rows[];
  AllowNextKernel();
  Head<Row, State, kLowRank>(call, shared_rows).Run();
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
