// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/device/sum_program_plan.h"

namespace rivulet {
namespace {

// Known() of an input, and of what no visit writes.
constexpr uint32_t kInput = 0;
constexpr uint32_t kNever = kMostProgramSums + 1;

class Planner {
 public:
  Planner(const SumProgramCall& call, ProgramPlan& plan) : call_(call), plan_(plan) {}

  bool Run() {
    plan_ = {};
    for (uint32_t i = 0; i < call_.read_count; ++i) {
      if (!Place(i)) return false;
    }
    return plan_.visit_count == call_.sum_count && RowsAreKnown();
  }

 private:
  // Gives the read to the visit of its sum, or to a new one behind the others.
  bool Place(uint32_t index) {
    const ProgramRead& read = call_.reads[index];
    uint32_t v = 0;
    while (v < plan_.visit_count && plan_.visits[v].sum != read.sum) ++v;
    if (v == plan_.visit_count) {
      plan_.visits[plan_.visit_count++] = {.sum = read.sum};
    } else if (!read.to_row && read.to == call_.out && v + 1 != plan_.visit_count) {
      return false;  // it would come before reads that are added earlier
    }
    ProgramVisit& visit = plan_.visits[v];
    if (visit.read_count == kMostVisitReads || VectorKnown(read.query) > v) return false;
    for (uint32_t r = 0; r < visit.read_count; ++r) {
      if (Writes(visit.reads[r], read.to_row, read.to)) return false;  // at the same time
    }
    visit.reads[visit.read_count++] = index;
    return true;
  }

  // The number of visits after which the vector has its value.
  uint32_t VectorKnown(uint32_t vector) const { return Known(false, vector); }
  uint32_t RowKnown(uint32_t row) const {
    return call_.rows_of[row].copies > 0 ? kInput : Known(true, row);
  }

  // After the visits that write it; a read that has no visit yet comes later.
  uint32_t Known(bool row, uint32_t index) const {
    uint32_t writes = 0, placed = 0, known = kInput;
    for (uint32_t i = 0; i < call_.read_count; ++i) writes += Writes(i, row, index) ? 1 : 0;
    for (uint32_t v = 0; v < plan_.visit_count; ++v) {
      for (uint32_t r = 0; r < plan_.visits[v].read_count; ++r) {
        if (!Writes(plan_.visits[v].reads[r], row, index)) continue;
        ++placed;
        known = v + 1;
      }
    }
    return placed == writes ? known : kNever;
  }
  bool Writes(uint32_t read, bool row, uint32_t index) const {
    return call_.reads[read].to_row == row && call_.reads[read].to == index;
  }

  bool RowsAreKnown() const {
    for (uint32_t v = 0; v < plan_.visit_count; ++v) {
      const ProgramSum& sum = call_.sums[plan_.visits[v].sum];
      if (RowKnown(sum.key) > v || RowKnown(sum.value) > v) return false;
    }
    return true;
  }

  const SumProgramCall& call_;
  ProgramPlan& plan_;
};

}  // namespace

bool PlanVisits(const SumProgramCall& call, ProgramPlan& plan) { return Planner(call, plan).Run(); }

}  // namespace rivulet
