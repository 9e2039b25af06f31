// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The arguments of a recurrence of several sums, read one after the other
// (kernels/recurrence/declaration.h), on a device: the declaration with its names resolved. Plain
// values: kernels take them as they are. All pointers are to device memory.
//
// A unit is what is executed on its own: a head, or a group of heads if any sum is kept for the
// group. All that a unit reads and writes in slots is its own, so units need not wait for each
// other; rows that heads of a group have in common are kept once for each unit.
//
// Letters: T tokens, U units, H heads, C tokens of a chunk, D key width; Dp is rounded up to 16.
#ifndef RIVULET_KERNELS_DEVICE_SUM_PROGRAM_OPERATIONS_H_
#define RIVULET_KERNELS_DEVICE_SUM_PROGRAM_OPERATIONS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/device/device_types.h"

namespace rivulet {

inline constexpr size_t kMostProgramVectors = 8;
inline constexpr size_t kMostProgramRows = 8;
inline constexpr size_t kMostProgramSums = 6;
inline constexpr size_t kMostProgramReads = 12;

// Numbers of each token: an input, a temporary of the step, or the output. fp32.
struct ProgramVector {
  float* data = nullptr;  // [T, heads or groups · width]
  uint32_t stride = 0;
  uint32_t width = 0;  // of a head or group, padded
  bool per_head = false;
};

// What a token leaves in the tail: [U or H, C, width] of the rows' dtype.
struct ProgramRow {
  size_t offset = 0;
  uint32_t width = 0;  // padded
  bool per_head = false;
  uint32_t copies = 0;  // vectors that it copies, side by side; 0: a read writes the row
  uint32_t copy[2] = {};
  // A normalised read writes the row, and its normaliser into [H, C] fp32.
  bool extra = false;
  size_t extra_offset = 0;
};

// M = e^{power g} M + keyᵀ value: base plane [U or H, Ep, Dp] in fragment order, and with a
// normaliser [U or H, Dp] fp32. The keys are the first Dp columns of the key row, the values Ep
// columns of the value row from `value_column` on. A normaliser's value is 1 for each token, or the
// value row's `extra`.
struct ProgramSum {
  size_t offset = 0;
  size_t normaliser_offset = 0;
  uint32_t key = 0, value = 0;  // rows
  uint32_t value_column = 0;
  uint32_t padded_value = 0;  // Ep
  float decay_power = 1;
  bool per_head = false;
  bool normaliser = false;
};

// to = query (sum + ridge I), or to += add · that. A strict read is as of before the token.
struct ProgramRead {
  uint32_t sum = 0;
  uint32_t query = 0;  // vector
  bool to_row = false;
  uint32_t to = 0;  // row or vector
  bool strict = false;
  float ridge = 0;
  float add = 0;  // 0: not added
};

struct SumProgramCall {
  DeviceRows rows;
  DeviceSlots slots;
  uint32_t units = 0;        // U
  uint32_t unit_heads = 1;   // H / U
  uint32_t group_heads = 1;  // heads that share a vector which is not per head
  uint32_t padded_key = 0;   // Dp
  bool bf16_state = false;
  const float* decays = nullptr;  // [H, C]: cumulative log decays of a chunk; null: no decay
  // With `divides`, the output is divided by its reads' normalisers n: o / (n + eps), or
  // o · (1 / (n + eps)).
  bool divides = false;
  bool reciprocal = false;
  float denominator_eps = 0;
  uint32_t out = 0;  // vector
  uint32_t row_count = 0, sum_count = 0, read_count = 0;
  ProgramVector vectors[kMostProgramVectors] = {};
  ProgramRow rows_of[kMostProgramRows] = {};
  ProgramSum sums[kMostProgramSums] = {};
  ProgramRead reads[kMostProgramReads] = {};  // in order
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_SUM_PROGRAM_OPERATIONS_H_
