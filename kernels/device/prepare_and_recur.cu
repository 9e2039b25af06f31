// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Row preparation and the recurrence that reads the rows: one launch for single tokens where the
// recurrence's kernel can prepare them (row_convolution.cuh) and is faster so, otherwise two.
#include "kernels/device/launch.cuh"
#include "kernels/device/prepared_parts.cuh"
#include "kernels/device/row_convolution.cuh"
#include "kernels/device/sums.cuh"
#include "kernels/device/sums_decode.cuh"

namespace rivulet::cuda {
namespace {

// The part that makes these rows; null: there is none.
const PreparedPart* PartOf(const PrepareCall& call, const float* rows) {
  for (uint32_t p = 0; p < call.part_count; ++p) {
    if (call.parts[p].y == rows) return &call.parts[p];
  }
  return nullptr;
}

// Whether a part has so many numbers and is what the convolution makes of its own columns.
bool IsConvolved(const PrepareCall& call, const PreparedPart* part, uint32_t numbers) {
  return part != nullptr && IsPlain(call, *part) && part->heads * part->width == numbers &&
         part->x == call.convolution.x + part->channel &&
         part->x_stride == call.convolution.x_stride;
}

// Whether a part is Δ of so many units as StepOf computes it.
bool IsStep(const PreparedPart* part, uint32_t units) {
  return part != nullptr && part->channel < 0 && !ByHead(*part) && part->width == units &&
         part->f == Activation::kSoftplus && part->multiplier == nullptr && part->rate == nullptr &&
         part->scale == 1.0f;
}

// Whether the recurrence's kernels for single tokens can prepare the rows of a call. In blocks of
// narrower values a thread would have more than one four to prepare, which has not been tested.
bool CanPrepare(const PrepareCall& prepare, const RecurCall& recur) {
  constexpr uint32_t kNarrowValues = 32;
  const uint32_t keys = recur.units / recur.units_per_key * recur.padded_key;
  const uint32_t values = recur.units / recur.units_per_value * recur.value_dim;
  return prepare.part_count == 4 && prepare.factors == nullptr && recur.q != recur.k &&
         IsConvolved(prepare, PartOf(prepare, recur.q), keys) &&
         IsConvolved(prepare, PartOf(prepare, recur.k), keys) &&
         IsConvolved(prepare, PartOf(prepare, recur.v), values) &&
         IsStep(PartOf(prepare, recur.g), recur.units) && recur.rows.single &&
         recur.gated.gate != nullptr && CanGate(recur) && !recur.query_per_head &&
         recur.decay != Decay::kNone && recur.constant == nullptr &&
         recur.v_head_stride == recur.value_dim && recur.value_dim > kNarrowValues &&
         prepare.fold_interval == kChunk;
}

// Whether a launch less is worth what blocks then do more than once: all units that share a key
// prepare it. Measured with 24 units of 64 x 128 (Mamba-2 130M) and with 80 (2.7B) on both chips
// (bench/results/device/h100/together.txt, h200/together.txt). With few units steps of up to 64
// rows are as fast or faster, mostly by 7 to 19 %; beyond, two kernels are faster. With many units
// one row is 3 to 5 % faster on an H200 and 1 % slower on an H100; three (H200) and four rows are 2
// to 5 % faster. Two rows with fp32 states are 6 % slower on an H200; why is not known.
// sums_decode_plain.cuh with bf16 states gains 3 % at 5 and 6 rows, nothing at 8 and 12, 2 % at 16
// to 32, and loses 1 % beyond (bench/results/device/h200/plain_sums.txt; not measured on an H100).
bool IsFaster(const RecurCall& recur, const LaunchContext& context) {
  constexpr uint32_t kFewUnits = 48, kMostRows = 64, kMostRowsOfMany = 32;
  const uint32_t rows = recur.rows.segment_count;
  if (recur.units <= kFewUnits) return rows <= kMostRows;
  if (recur.bf16_state && IsPlainSum(recur) && rows > 4) return rows <= kMostRowsOfMany;
  const uint32_t blocks = DecodeBlocks(recur, kMostWarps * 16);
  return rows != 2 && blocks <= 3 * static_cast<uint32_t>(context.processors);
}

// False: not of this kind, and nothing is launched.
bool LaunchTogether(const PrepareCall& prepare, RecurCall recur, const LaunchContext& context) {
  UnpreparedRows rows;
  if (!IsFaster(recur, context) || !ReadUnprepared(prepare, recur, rows)) return false;
  return LaunchDecode(recur, context, &rows);
}

}  // namespace

bool ReadUnprepared(const PrepareCall& prepare, RecurCall& recur, UnpreparedRows& rows) {
  if (!CanPrepare(prepare, recur)) return false;
  const auto channel = [&](const float* of) {
    return static_cast<uint32_t>(PartOf(prepare, of)->channel);
  };
  const PreparedPart& step = *PartOf(prepare, recur.g);
  rows = {.convolution = prepare.convolution,
          .key_channel = channel(recur.k),
          .query_channel = channel(recur.q),
          .value_channel = channel(recur.v),
          .step_bias = step.bias,
          .step_low = step.low,
          .step_high = step.high};
  const auto read_unprepared = [&](const float*& from, uint32_t& stride) {
    const PreparedPart& part = *PartOf(prepare, from);
    from = part.x, stride = part.x_stride;
  };
  read_unprepared(recur.q, recur.q_stride);
  read_unprepared(recur.k, recur.k_stride);
  read_unprepared(recur.v, recur.v_stride);
  read_unprepared(recur.g, recur.g_stride);
  return true;
}

void LaunchPrepareAndRecur(const PrepareCall& prepare, const RecurCall& recur,
                           const NextWeights& next, bool fp32_rows, const LaunchContext& context) {
  PrepareCall rows = prepare;
  ByParts(recur, [&](const RecurCall& part) {
    rows.rows = part.rows;
    if (!fp32_rows && LaunchTogether(rows, part, context)) return;
    LaunchPrepare(rows, fp32_rows, context);
    LaunchRecur(part, next, fp32_rows, context);
  });
}

}  // namespace rivulet::cuda
