// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A declaration on a device: its planes there, and the call that executes it (kernels/device).
#include <algorithm>
#include <string>

#include "kernels/base/check.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/device_step.h"
#include "kernels/device/sum_program_operations.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

uint32_t Narrow(size_t n) { return static_cast<uint32_t>(n); }

// Whether there are reads one after the other.
bool IsProgram(const RecurrenceDeclaration& declaration) {
  return declaration.sums.size() != 1 || declaration.reads.size() != 1;
}

// The vectors of a program, temporaries behind them.
enum Vector : uint32_t { kQuery, kKey, kValue, kOut, kTemporary };

uint32_t VectorOf(ConstFloatMatrix TokenInputs::*input) {
  if (input == &TokenInputs::q) return kQuery;
  return input == &TokenInputs::k ? kKey : kValue;
}

ProgramVector VectorIn(ConstFloatMatrix x, size_t width, bool per_head) {
  return {const_cast<float*>(x.data), Narrow(x.stride), Narrow(width), per_head};
}

}  // namespace

bool SumRecurrence::RunsOnDevice(const RecurrenceDeclaration& declaration) {
  if (declaration.levels != 0) return PagesRunOnDevice(declaration);
  if (!IsProgram(declaration)) {
    // RWKV-7 and RWKV-6 have an operation of their own.
    if (declaration.low_rank || declaration.reads[0].strict) return false;
    const bool plain = !declaration.delta && declaration.decay.kind != Decay::kChannel;
    return plain || !declaration.sums[0].normaliser;
  }
  const DeclaredDecay& decay = declaration.decay;
  const bool constant = decay.kind == Decay::kNone || !decay.constant.empty();
  const bool scaled = std::any_of(declaration.rows.begin(), declaration.rows.end(),
                                  [](const DeclaredRow& row) { return row.times_step; });
  return constant && !scaled && declaration.skip.empty() &&
         declaration.sharing == Sharing::kKeysAndValues &&
         declaration.rows.size() <= kMostProgramRows &&
         declaration.sums.size() <= kMostProgramSums &&
         declaration.reads.size() <= kMostProgramReads;
}

// Matrices are [Ep, Dp] in fragment order (kernels/device/sums.cu); rows are as products want them.
void SumRecurrence::AddDevicePlanes(StateLayout& layout) {
  if (!RunsOnDevice(declaration_)) return;  // the layer says so
  if (declaration_.levels != 0) return AddDevicePagePlanes(layout);
  if (IsProgram(declaration_)) return AddProgramPlanes(layout);
  const DType fp32 = DType::kFloat32;
  Sum& sum = sums_[0];
  const size_t units = HeadCount(sum.per_head), keys = shape().padded_key();
  sum.offset = layout.Add(StatePart::kBase, sum.name, sum.shape.dtype,
                          {units, sum.shape.padded_value(), keys});
  if (sum.shape.normaliser) {
    sum.normaliser_offset =
        layout.Add(StatePart::kBase, std::string(sum.name) + "_normaliser", fp32,
                   {units, NormaliserCopies(Narrow(sum.shape.padded_value())), keys});
  }
  for (Row& row : rows_) {
    row.offset = layout.Add(StatePart::kTail, row.name, layout.row_dtype(),
                            {HeadCount(row.per_head), fold_interval_, row.padded});
  }
  if (!appends_decay()) return;
  decay_offset_ = layout.Add(StatePart::kTail, "log_decay", fp32,
                             {HeadCount(decay_per_head()), fold_interval_, decay_columns()});
}

bool SumRecurrence::GatesOnDevice() const {
  return RunsOnDevice(declaration_) && declaration_.levels == 0 && !IsProgram(declaration_) &&
         HeadCount(sums_[0].per_head) == shape().heads &&
         shape().value_dim == shape().padded_value();
}

void SumRecurrence::Enqueue(const DeviceStep& step, const TokenInputs& inputs, FloatMatrix out,
                            const GatedOutputs* gated, const PrepareCall* prepare,
                            const ProjectionCall* projection) const {
  RIVULET_CHECK(gated == nullptr || GatesOnDevice(), "outputs that cannot be gated");
  RIVULET_CHECK(prepare == nullptr || gated != nullptr, "rows that were to be prepared before");
  RIVULET_CHECK(projection == nullptr || prepare != nullptr,
                "a product that was to be done before");
  if (declaration_.levels != 0) return EnqueuePages(step, inputs, out);
  if (IsProgram(declaration_)) return EnqueueProgram(step, inputs, out);
  const Sum& sum = sums_[0];
  const Row &key = rows_[sum.key], &value = rows_[sum.value];
  const size_t units = HeadCount(sum.per_head), keys = HeadCount(key.per_head);
  const size_t values = HeadCount(value.per_head);
  RecurCall call{.rows = step.rows,
                 .slots = step.slots,
                 .units = Narrow(units),
                 .unit_heads = Narrow(shape().heads / units),
                 .units_per_key = Narrow(units / keys),
                 .units_per_value = Narrow(units / values),
                 .key_dim = Narrow(shape().key_dim),
                 .value_dim = Narrow(sum.shape.value_dim),
                 .padded_key = Narrow(shape().padded_key()),
                 .padded_value = Narrow(sum.shape.padded_value()),
                 .q = inputs.q.data,
                 .q_stride = Narrow(inputs.q.stride),
                 .query_per_head = queries_per_head(),
                 .k = inputs.k.data,
                 .k_stride = Narrow(inputs.k.stride),
                 .v = inputs.v.data,
                 .v_stride = Narrow(inputs.v.stride),
                 .v_head_stride = Narrow(value.times_step || !declaration_.skip.empty()
                                             ? shape().value_dim
                                             : shape().padded_value()),
                 .decay = declaration_.decay.kind,
                 .out = out};
  if (gated != nullptr) call.gated = *gated;
  if (declaration_.decay.kind == Decay::kChannel) {
    call.units_per_decay = Narrow(units / HeadCount(decay_per_head()));
  }
  call.g = inputs.decay.data;
  call.g_stride = Narrow(inputs.decay.stride);
  call.rate = step.device->Constant(declaration_.decay.rate);
  call.constant = step.device->Constant({constant_decay_.data(), constant_decay_.size()});
  call.times_step = value.times_step;
  call.delta = declaration_.delta;
  call.beta = inputs.beta.data;
  call.beta_stride = Narrow(inputs.beta.stride);
  call.skip = step.device->Constant(declaration_.skip);
  call.normaliser = sum.shape.normaliser;
  call.reciprocal = declaration_.division == Division::kReciprocal;
  call.denominator_eps = declaration_.denominator_eps;
  call.bf16_state = sum.shape.dtype == DType::kBFloat16;
  call.state_offset = sum.offset;
  call.normaliser_offset = sum.normaliser_offset;
  call.key_offset = key.offset;
  call.value_offset = value.offset;
  call.decay_offset = decay_offset_;
  if (projection != nullptr) return step.device->ProjectAndRecur(*projection, *prepare, call);
  if (prepare != nullptr) return step.device->PrepareAndRecur(*prepare, call);
  step.device->Recur(call);
}

// --- several reads -------------------------------------------------------------------------------

// Heads, unless they share a sum: then the group.
size_t SumRecurrence::ProgramUnits() const {
  const bool shared =
      std::any_of(sums_.begin(), sums_.end(), [](const Sum& sum) { return !sum.per_head; });
  return shared ? shape().groups : shape().heads;
}

void SumRecurrence::AddProgramPlanes(StateLayout& layout) {
  const DType fp32 = DType::kFloat32;
  const size_t units = ProgramUnits(), keys = shape().padded_key();
  for (Sum& sum : sums_) {
    const size_t count = sum.per_head ? shape().heads : units;
    sum.offset = layout.Add(StatePart::kBase, sum.name, sum.shape.dtype,
                            {count, sum.shape.padded_value(), keys});
    if (!sum.shape.normaliser) continue;
    sum.normaliser_offset =
        layout.Add(StatePart::kBase, std::string(sum.name) + "_normaliser", fp32, {count, keys});
  }
  for (Row& row : rows_) {
    const size_t count = row.per_head ? shape().heads : units;
    row.offset = layout.Add(StatePart::kTail, row.name, layout.row_dtype(),
                            {count, fold_interval_, row.padded});
    if (!row.extra) continue;
    row.extra_offset = layout.Add(StatePart::kTail, std::string(row.name) + "_extra", fp32,
                                  {shape().heads, fold_interval_});
  }
}

void SumRecurrence::AddVectors(const DeviceStep& step, const TokenInputs& inputs, FloatMatrix out,
                               SumProgramCall& call) const {
  RIVULET_CHECK(kTemporary + temporaries_.size() <= kMostProgramVectors, "too many temporaries");
  call.vectors[kQuery] = VectorIn(inputs.q, shape().padded_key(), true);
  call.vectors[kKey] = VectorIn(inputs.k, shape().padded_key(), false);
  call.vectors[kValue] = VectorIn(inputs.v, shape().padded_value(), false);
  call.vectors[kOut] = VectorIn(out, shape().padded_value(), true);
  for (size_t i = 0; i < temporaries_.size(); ++i) {
    const size_t width = temporaries_[i].columns;
    call.vectors[kTemporary + i] =
        VectorIn(step.workspace->Take(out.rows, shape().heads * width), width, true);
  }
}

SumProgramCall SumRecurrence::ProgramOf(const DeviceStep& step) const {
  const size_t units = ProgramUnits();
  SumProgramCall call{.rows = step.rows,
                      .slots = step.slots,
                      .units = Narrow(units),
                      .unit_heads = Narrow(shape().heads / units),
                      .group_heads = Narrow(shape().group()),
                      .padded_key = Narrow(shape().padded_key()),
                      .bf16_state = shape().state_dtype == DType::kBFloat16,
                      .out = kOut};
  call.decays = step.device->Constant({constant_decay_.data(), constant_decay_.size()});
  call.divides = declaration_.division != Division::kNone;
  call.reciprocal = declaration_.division == Division::kReciprocal;
  call.denominator_eps = declaration_.denominator_eps;
  for (const Row& row : rows_) {
    ProgramRow& to = call.rows_of[call.row_count++];
    to = {.offset = row.offset,
          .width = Narrow(row.padded),
          .per_head = row.per_head,
          .extra = row.extra,
          .extra_offset = row.extra_offset};
    for (const Source& source : row.copies) to.copy[to.copies++] = VectorOf(source.input);
  }
  for (const Sum& sum : sums_) {
    call.sums[call.sum_count++] = {.offset = sum.offset,
                                   .normaliser_offset = sum.normaliser_offset,
                                   .key = Narrow(sum.key),
                                   .value = Narrow(sum.value),
                                   .value_column = Narrow(sum.value_column),
                                   .padded_value = Narrow(sum.shape.padded_value()),
                                   .decay_power = sum.decay_power,
                                   .per_head = sum.per_head,
                                   .normaliser = sum.shape.normaliser};
  }
  return call;
}

void SumRecurrence::EnqueueProgram(const DeviceStep& step, const TokenInputs& inputs,
                                   FloatMatrix out) const {
  SumProgramCall call = ProgramOf(step);
  AddVectors(step, inputs, out, call);
  for (const Read& read : reads_) {
    ProgramRead& to = call.reads[call.read_count++];
    to = {.sum = Narrow(read.sum), .strict = read.strict, .ridge = read.ridge, .add = read.add};
    to.query = read.query == nullptr ? kTemporary + Narrow(read.temporary) : VectorOf(read.query);
    to.to_row = read.target == Target::kRow;
    to.to = kOut;
    if (to.to_row) to.to = Narrow(read.to);
    if (read.target == Target::kTemporary) to.to = kTemporary + Narrow(read.to);
  }
  step.device->RunSumProgram(call);
}

}  // namespace rivulet
