// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One token of each of many segments: what sum_program.cu does, at the speed at which the states
// can be read. The sums of a unit are visited one after the other (sum_program_plan.h), each state
// comes once through a ring in shared memory, and what a read writes stays there for the next
// visit. One warp of a block (ProgramProducer) brings everything, the others (ProgramConsumer) read
// and fold. Several blocks share a processor, so that it also reads while one of them waits. The
// order of every sum is that of sum_program.cu, so the bits are the same.
//
// Bytes expected: each state once, the tail's rows, inputs and outputs, and, for a row that ends a
// chunk, the states once more.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/device/sum_program_consumer.cuh"
#include "kernels/device/sum_program_producer.cuh"
#include "kernels/device/sum_program_stream.cuh"

namespace rivulet::cuda {
namespace {

template <typename Form>
__device__ void InitProgramBarriers(ProgramBarriers& barriers, uint32_t stages) {
  for (uint32_t s = 0; s < stages; ++s) {
    InitBarrier(&barriers.full[s], 1);
    InitBarrier(&barriers.empty[s], 1);
  }
  for (uint32_t u = 0; u < kUnitBuffers; ++u) {
    InitBarrier(&barriers.unit_full[u], 33);  // the copies of each lane, and the header
    InitBarrier(&barriers.unit_empty[u], Form::kConsumers);
  }
  FenceBarrierInit();
}

template <typename Form>
__global__ void __launch_bounds__((Form::kConsumers + 1) * 32, Form::kMostBlocks)
    ProgramStreamKernel(const __grid_constant__ SumProgramCall call,
                        const __grid_constant__ ProgramPlan plan,
                        const __grid_constant__ ProgramLayout layout, uint32_t* next_unit) {
  extern __shared__ __align__(128) std::byte memory[];
  AllowNextKernel();
  if (threadIdx.x == 0) {
    InitProgramBarriers<Form>(*reinterpret_cast<ProgramBarriers*>(memory), layout.stages);
  }
  __syncthreads();
  if (threadIdx.x / 32 < Form::kConsumers) {
    ProgramConsumer<Form>(call, plan, layout, memory).Run();
  } else {
    ProgramProducer<Form>(call, plan, layout, memory, next_unit).Run();
  }
}

// --- the division of the memory ------------------------------------------------------------------

bool IsInput(const SumProgramCall& call, uint32_t vector) {
  for (uint32_t i = 0; i < call.read_count; ++i) {
    if (!call.reads[i].to_row && call.reads[i].to == vector) return false;
  }
  return true;
}

bool IsQuery(const SumProgramCall& call, uint32_t vector) {
  for (uint32_t i = 0; i < call.read_count; ++i) {
    if (call.reads[i].query == vector) return true;
  }
  return false;
}

bool IsCopied(const SumProgramCall& call, uint32_t vector) {
  for (uint32_t r = 0; r < call.row_count; ++r) {
    const ProgramRow& row = call.rows_of[r];
    for (uint32_t i = 0; i < row.copies; ++i) {
      if (row.copy[i] == vector) return true;
    }
  }
  return false;
}

void LayOutUnit(const SumProgramCall& call, ProgramLayout& layout) {
  Taker unit(0);
  for (uint32_t r = 0; r < call.row_count; ++r) {
    layout.row_stride[r] = call.rows_of[r].width + kPad;
    layout.rows[r] = unit.Take(kChunk * layout.row_stride[r] * 2);
  }
  for (uint32_t v = 0; v < kMostProgramVectors; ++v) {
    const bool query = IsQuery(call, v), read = query || IsCopied(call, v);
    const bool input = read && IsInput(call, v);
    layout.vectors[v] = input ? unit.Take(call.vectors[v].width * 4) : kAbsent;
    layout.queries[v] = query ? unit.Take((call.padded_key + kPad) * 4) : kAbsent;
  }
  layout.decays = unit.Take(kChunk * 4);
  layout.out = unit.Take(call.vectors[call.out].width * 4);
  layout.header = unit.Take(sizeof(UnitHeader));
  layout.unit_bytes = unit.Aligned();
}

ProgramLayout LayoutFor(const SumProgramCall& call) {
  ProgramLayout layout = {};
  LayOutUnit(call, layout);
  Taker block(sizeof(ProgramBarriers));
  layout.first_unit = block.Aligned();
  layout.first_stage = layout.first_unit + kUnitBuffers * layout.unit_bytes;
  layout.units = call.units * call.rows.segment_count;
  for (uint32_t i = 0; i < call.read_count; ++i) {
    if (!call.reads[i].to_row && call.reads[i].to == call.out) layout.last_out = i;
  }
  return layout;
}

// Divides what each of so many blocks has of a processor's memory. False: not enough.
template <typename Form>
bool Fits(ProgramLayout& layout, uint32_t blocks) {
  const uint32_t room = kSharedOfBlocks / blocks - kSharedReserve;
  constexpr uint32_t kStep = Form::kConsumers;
  if (room < layout.first_stage + kStep * Form::kTileBytes) return false;
  const uint32_t stages = (room - layout.first_stage) / Form::kTileBytes;
  layout.stages = std::min(kMostProgramStages, stages / kStep * kStep);
  layout.bytes = layout.first_stage + layout.stages * Form::kTileBytes;
  return true;
}

// --- the calls that it serves --------------------------------------------------------------------

// Whether copies of 16 bytes may start at the vector of every head of every token.
bool Aligned(const ProgramVector& vector) {
  return reinterpret_cast<uintptr_t>(vector.data) % 16 == 0 && vector.stride % 4 == 0 &&
         vector.width % 4 == 0;
}

// A ridge multiplies an input; a temporary is the query of another read, as wide as keys.
bool Streams(const SumProgramCall& call, const ProgramRead& read) {
  if (read.ridge != 0.0f && !IsInput(call, read.query)) return false;
  if (read.to_row || read.to == call.out) return true;
  return IsQuery(call, read.to) && read.add == 0.0f &&
         call.sums[read.sum].padded_value == call.padded_key;
}

bool Streams(const SumProgramCall& call) {
  if (!call.rows.single || call.unit_heads != 1 || call.divides) return false;
  for (uint32_t i = 0; i < call.sum_count; ++i) {
    if (call.sums[i].normaliser) return false;
  }
  for (uint32_t i = 0; i < call.read_count; ++i) {
    if (!Streams(call, call.reads[i])) return false;
  }
  return std::all_of(call.vectors, call.vectors + kMostProgramVectors, Aligned);
}

template <typename Form>
bool Launch(const SumProgramCall& call, const ProgramPlan& plan, const LaunchContext& context) {
  ProgramLayout layout = LayoutFor(call);
  uint32_t shared_by = Form::kMostBlocks;
  while (shared_by > 0 && !Fits<Form>(layout, shared_by)) --shared_by;
  const uint32_t blocks = shared_by * static_cast<uint32_t>(context.processors);
  if (blocks == 0) return false;
  static const cudaError_t prepared = AllowAllShared(ProgramStreamKernel<Form>);
  context.Check(prepared);
  context.Run(ProgramStreamKernel<Form>, dim3(std::min(layout.units, blocks)),
              (Form::kConsumers + 1) * 32, layout.bytes, call, plan, layout, context.counter);
  return true;
}

template <bool kBf16State>
bool LaunchForKey(const SumProgramCall& call, const ProgramPlan& plan,
                  const LaunchContext& context) {
  switch (call.padded_key) {
    case 64:
      return Launch<ProgramForm<kBf16State, 4>>(call, plan, context);
    case 128:
      return Launch<ProgramForm<kBf16State, 8>>(call, plan, context);
    case 256:
      return Launch<ProgramForm<kBf16State, 16>>(call, plan, context);
    default:
      return false;
  }
}

}  // namespace

bool LaunchProgramStream(const SumProgramCall& call, const LaunchContext& context) {
  ProgramPlan plan;
  if (!Streams(call) || !PlanVisits(call, plan)) return false;
  return call.bf16_state ? LaunchForKey<true>(call, plan, context)
                         : LaunchForKey<false>(call, plan, context);
}

}  // namespace rivulet::cuda
