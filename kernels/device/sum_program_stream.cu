// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One token of each of any number of segments: what sum_program.cu does, as fast as the states can
// be read. The sums of a unit are visited one after the other (sum_program_plan.h), each state
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
__device__ void InitProgramBarriers(ProgramBarriers& barriers, uint32_t copies) {
  for (uint32_t copy = 0; copy < copies; ++copy) {
    InitBarrier(&barriers.full[copy], 1);
    InitBarrier(&barriers.empty[copy], Form::kCopyTiles);
  }
  for (uint32_t u = 0; u < kUnitBuffers; ++u) {
    InitBarrier(&barriers.unit_full[u], kArrivalsWithCopies);
    InitBarrier(&barriers.unit_empty[u], Form::kConsumers);
  }
  FenceBarrierInit();
}

template <typename Form>
__global__ void __launch_bounds__((Form::kConsumers + 1) * 32, Form::kMostBlocks)
    ProgramStreamKernel(const __grid_constant__ SumProgramCall call,
                        const __grid_constant__ ProgramLayout layout, uint32_t* taken) {
  extern __shared__ __align__(128) std::byte memory[];
  AllowNextKernel();
  const bool produces = threadIdx.x / 32 == Form::kConsumers;
  ProgramProducer<Form> producer(call, layout, memory, taken);
  if (produces) producer.TakeFirstUnit();
  if (threadIdx.x == 0) {
    InitProgramBarriers<Form>(*reinterpret_cast<ProgramBarriers*>(memory),
                              layout.groups * Form::kCopies);
  }
  __syncthreads();
  if (produces) {
    producer.Run();
  } else {
    ProgramConsumer<Form>(call, layout, memory).Run();
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

// How many lanes copy a row of so many pieces of 16 bytes: a power of two.
uint32_t LanesShift(uint32_t pieces) {
  uint32_t shift = 0;
  while (shift < 5 && 1u << shift < pieces) ++shift;
  return shift;
}

void AddInput(const ProgramVector& vector, uint32_t to, ProgramLayout& layout) {
  layout.input[layout.inputs++] = {reinterpret_cast<const std::byte*>(vector.data),
                                   vector.stride * 4,
                                   vector.width * 4,
                                   vector.per_head ? 1u : 0u,
                                   vector.width / 4,
                                   to};
}

void LayOutUnit(const SumProgramCall& call, ProgramLayout& layout) {
  Taker unit(0);
  for (uint32_t r = 0; r < call.row_count; ++r) {
    layout.row_bytes[r] = (call.rows_of[r].width + kPad) * 2;
    layout.row_shift[r] = LanesShift(call.rows_of[r].width / 8);
    layout.rows[r] = unit.Take(kChunk * layout.row_bytes[r]);
  }
  for (uint32_t v = 0; v < kMostProgramVectors; ++v) {
    const bool query = IsQuery(call, v), read = query || IsCopied(call, v);
    const bool input = read && IsInput(call, v);
    layout.vectors[v] = input ? unit.Take(call.vectors[v].width * 4) : kAbsent;
    layout.queries[v] = query ? unit.Take((call.padded_key + kPad) * 4) : kAbsent;
    if (input) AddInput(call.vectors[v], layout.vectors[v], layout);
  }
  layout.decays = unit.Take(kChunk * 4);
  if (call.decays != nullptr) {
    layout.input[layout.inputs++] = {reinterpret_cast<const std::byte*>(call.decays),
                                     0,
                                     kChunk * 4,
                                     1,
                                     kChunk / 4,
                                     layout.decays};
  }
  layout.out = unit.Take(call.vectors[call.out].width * 4);
  layout.header = unit.Take(sizeof(UnitHeader));
  layout.unit_bytes = unit.Aligned();
}

// --- the tables ----------------------------------------------------------------------------------

// The rows that copy vectors, and the queries that are inputs.
void ListJobs(const SumProgramCall& call, ProgramLayout& layout) {
  for (uint32_t r = 0; r < call.row_count; ++r) {
    const ProgramRow& row = call.rows_of[r];
    uint32_t column = 0;
    for (uint32_t i = 0; i < row.copies; ++i) {
      const uint32_t width = call.vectors[row.copy[i]].width;
      layout.job[layout.jobs++] = {
          layout.vectors[row.copy[i]], width / 4,     layout.rows[r] + column * 2,
          layout.row_bytes[r],         row.width * 2, row.offset + column * 2};
      column += width;
    }
  }
  for (uint32_t v = 0; v < kMostProgramVectors; ++v) {
    if (layout.queries[v] == kAbsent || layout.vectors[v] == kAbsent) continue;
    layout.job[layout.jobs++] = {
        layout.vectors[v], call.padded_key / 4, layout.queries[v], 0, 0, 0};
  }
}

// Of a read; `last`: the output is complete after it.
ProgramTarget TargetOf(const SumProgramCall& call, const ProgramRead& read, bool last,
                       const ProgramLayout& layout) {
  ProgramTarget target = {};
  target.query = layout.queries[read.query];
  target.strict = read.strict ? 1 : 0;
  target.ridge = read.ridge;
  target.add = read.add;
  if (read.ridge != 0.0f) target.ridge_of = layout.vectors[read.query];
  if (read.to_row) {
    target.writes = WritesTo::kRow;
    target.to = layout.rows[read.to];
    target.row_bytes = layout.row_bytes[read.to];
    target.tail_bytes = call.rows_of[read.to].width * 2;
    target.tail = call.rows_of[read.to].offset;
  } else if (read.to == call.out) {
    target.writes = last ? WritesTo::kOutput : WritesTo::kSum;
    target.to = layout.out;
  } else {
    target.writes = WritesTo::kQuery;
    target.to = layout.queries[read.to];
  }
  return target;
}

void ListVisits(const SumProgramCall& call, const ProgramPlan& plan, ProgramLayout& layout) {
  uint32_t last_out = 0;
  for (uint32_t i = 0; i < call.read_count; ++i) {
    if (!call.reads[i].to_row && call.reads[i].to == call.out) last_out = i;
  }
  layout.visits = plan.visit_count;
  for (uint32_t v = 0; v < plan.visit_count; ++v) {
    const ProgramVisit& planned = plan.visits[v];
    const ProgramSum& sum = call.sums[planned.sum];
    VisitTable& visit = layout.visit[v];
    visit = {.state = sum.offset,
             .tiles = sum.padded_value / 16,
             .reads = planned.read_count,
             .key = layout.rows[sum.key],
             .key_bytes = layout.row_bytes[sum.key],
             .value = layout.rows[sum.value] + sum.value_column * 2,
             .value_bytes = layout.row_bytes[sum.value],
             .decay_power = sum.decay_power,
             .targets = {}};
    for (uint32_t r = 0; r < planned.read_count; ++r) {
      const uint32_t index = planned.reads[r];
      visit.targets[r] = TargetOf(call, call.reads[index], index == last_out, layout);
    }
  }
}

ProgramLayout LayoutFor(const SumProgramCall& call, const ProgramPlan& plan) {
  ProgramLayout layout = {};
  LayOutUnit(call, layout);
  ListJobs(call, layout);
  ListVisits(call, plan, layout);
  layout.first_job =
      static_cast<uint32_t>(sizeof(ProgramBarriers) + layout.visits * sizeof(VisitTable));
  Taker block(static_cast<uint32_t>(layout.first_job + layout.jobs * sizeof(ProgramJob)));
  layout.zeros = block.Take(16);
  layout.first_unit = block.Aligned();
  layout.first_stage = layout.first_unit + kUnitBuffers * layout.unit_bytes;
  layout.units = call.units * call.rows.segment_count;
  layout.of_segment = Divisor::Of(call.units);
  layout.of_group = Divisor::Of(call.group_heads);
  return layout;
}

// False: there are too many groups.
template <typename Form>
bool ListCopies(ProgramLayout& layout) {
  uint32_t fours = 0;
  for (uint32_t i = 0; i < layout.inputs; ++i) fours += layout.input[i].fours;
  layout.more_pieces = fours > 32 * Form::kPieces ? 1 : 0;
  for (uint32_t v = 0; v < layout.visits; ++v) {
    const VisitTable& visit = layout.visit[v];
    for (uint32_t tile = 0; tile < visit.tiles; tile += Form::kConsumers) {
      if (layout.unit_groups == kMostProgramGroups) return false;
      layout.group[layout.unit_groups++] = {visit.state + size_t{tile} * Form::kTileBytes,
                                            visit.tiles * Form::kTileBytes, visit.tiles - tile};
    }
  }
  return true;
}

// Divides what each of so many blocks has of a processor's memory. False: not enough.
template <typename Form>
bool Fits(ProgramLayout& layout, uint32_t blocks) {
  const uint32_t room = kSharedOfBlocks / blocks - kSharedReserve;
  constexpr uint32_t kGroupBytes = Form::kConsumers * Form::kTileBytes;
  if (room < layout.first_stage + Form::kSideBySide * kGroupBytes) return false;
  layout.groups =
      std::min(kMostProgramStages / Form::kConsumers, (room - layout.first_stage) / kGroupBytes);
  layout.bytes = layout.first_stage + layout.groups * kGroupBytes;
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
  if (call.read_count == 0) return false;  // there would be no states to bring
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
  ProgramLayout layout = LayoutFor(call, plan);
  if (!ListCopies<Form>(layout) ||
      !layout.of_segment.Serves(uint64_t{call.units} * call.rows.segment_count)) {
    return false;
  }
  // With few units a block is mostly alone on its processor, and longer rings are worth more. So
  // they are with fp32 states and keys of 128, of which rings have few groups.
  const bool few = layout.units <= 2 * static_cast<uint32_t>(context.processors);
  const bool two = few || (!Form::kBf16State && Form::kKeyTiles > 4);
  uint32_t shared_by = two ? std::min(Form::kMostBlocks, 2u) : Form::kMostBlocks;
  while (shared_by > 0 && !Fits<Form>(layout, shared_by)) --shared_by;
  const uint32_t blocks = shared_by * static_cast<uint32_t>(context.processors);
  if (blocks == 0) return false;
  layout.given = MostGiven(layout.units, blocks);
  static const cudaError_t prepared = AllowAllShared(ProgramStreamKernel<Form>);
  context.Check(prepared);
  context.Run(ProgramStreamKernel<Form>, dim3(std::min(layout.units, blocks)),
              (Form::kConsumers + 1) * 32, layout.bytes, call, layout, context.counter);
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
