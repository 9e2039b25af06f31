// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How a program of sums (sum_program_operations.h) can be executed for one token while each state
// is read once: the sums in the order in which they are visited, each with all of its reads.
//
// Threading: none of its own. Nothing is owned.
#ifndef RIVULET_KERNELS_DEVICE_SUM_PROGRAM_PLAN_H_
#define RIVULET_KERNELS_DEVICE_SUM_PROGRAM_PLAN_H_

#include <cstdint>

#include "kernels/device/sum_program_operations.h"

namespace rivulet {

inline constexpr uint32_t kMostVisitReads = 2;

// A sum and the reads of it, which come in the program's order.
struct ProgramVisit {
  uint32_t sum = 0;
  uint32_t read_count = 0;
  uint32_t reads[kMostVisitReads] = {};
};

struct ProgramPlan {
  uint32_t visit_count = 0;
  ProgramVisit visits[kMostProgramSums] = {};
};

// In a plan, what a visit reads was written by earlier visits or is an input: the queries, and the
// rows of its sum, which it can therefore fold. Reads are added to an output in the program's
// order. False where there is no such plan, as where a sum is read again with what was made of its
// reads, or where a sum is not read at all; `plan` is undefined then.
bool PlanVisits(const SumProgramCall& call, ProgramPlan& plan);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_SUM_PROGRAM_PLAN_H_
