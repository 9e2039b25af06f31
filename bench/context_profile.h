// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Where the time of a decode step goes (rivulet-context-bench --profile): one row for each mixer,
// in microseconds of a layer and a step of all its sessions.
//
//   projection, convolution, norm, output   as named; the products also with GB/s of their weights
//   preparation                             all that is in no other column: padding, activations,
//                                           gates, decays, rotary positions
//   read                                    the recurrence in steps that do not fold: append, read
//   fold                                    what a folding step takes longer, over the chunk
//
// For benchmarks only.
#ifndef RIVULET_BENCH_CONTEXT_PROFILE_H_
#define RIVULET_BENCH_CONTEXT_PROFILE_H_

#include <cstddef>

#include "kernels/base/stage_times.h"
#include "kernels/base/thread_pool.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// Totals over steps of one kind.
struct ProfiledSteps {
  StageTimes times;
  double seconds = 0;
  size_t layers = 0;  // forward passes of a layer in them
};

// The row's numbers. `read_bytes` are those that a layer reads of its sessions' bases and pages.
nlohmann::json ProfileOf(ProfiledSteps reading, ProfiledSteps folding, size_t fold_interval,
                         double read_bytes);

// What a parallel loop over one empty task for each thread takes, in microseconds, median: `hot`
// right after another, `cold` after the threads went to sleep.
nlohmann::json MeasureHandoff(ThreadPool& pool);

void PrintProfileHead(const nlohmann::json& handoff);
void PrintProfile(const nlohmann::json& row);  // of ContextBench, with "profile"

}  // namespace rivulet

#endif  // RIVULET_BENCH_CONTEXT_PROFILE_H_
