// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Gates outputs that a recurrence stored as they are: those of prompts, and of decode rows that no
// kernel of sums_decode.cu or sums_stream.cu takes. A thread has a number.
//
// Bytes expected: outputs and gates once, operands once.
#include "kernels/device/gated_outputs.cuh"
#include "kernels/device/launch.cuh"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    GateOutputsKernel(const __grid_constant__ RecurCall call, uint32_t columns) {
  AllowNextKernel();
  AwaitLastKernel();
  const GatedOutputs& to = call.gated;
  const uint32_t token = call.rows.before + blockIdx.x;
  const uint32_t column = blockIdx.y * kThreads + threadIdx.x;
  float x = 0.0f;
  if (column < columns) {
    float gate = to.gate[size_t{token} * to.gate_stride + column];
    if (to.gate_factors != nullptr) gate *= to.gate_factors[token];
    x = call.out.data[token * call.out.stride + column] * Silu(gate);
  }
  const float squares = SquaresOf<1, 8>(x, threadIdx.x / 8 % 2 == 1);
  if (column >= columns) return;
  StoreOperand(to.y, token, column, x * to.weight[column]);
  if (threadIdx.x % GatedOutputs::kSquares == 0) StoreSquares(to, token, column, squares);
}

}  // namespace

void LaunchGateOutputs(const RecurCall& call, const LaunchContext& context) {
  const uint32_t columns = call.units * call.value_dim;
  const dim3 grid(call.rows.tokens - call.rows.before, (columns + kThreads - 1) / kThreads);
  context.Run(GateOutputsKernel, grid, kThreads, 0, call, columns);
}

}  // namespace rivulet::cuda
