// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Distributes rows of cheap elementwise work over a ThreadPool, unless a wake-up would cost more
// than the work. The distribution never changes a bit (thread_pool.h).
#ifndef RIVULET_KERNELS_BASE_PARALLEL_H_
#define RIVULET_KERNELS_BASE_PARALLEL_H_

#include <algorithm>
#include <cstddef>

#include "kernels/base/thread_pool.h"

namespace rivulet {

// A sleeping thread takes about 10 µs to wake up, in which one core processes 16k floats or more
// (an RMSNorm takes 0.1 ns per float, a gated norm 0.4, convolution with SiLU 0.5, softplus 0.7).
inline constexpr size_t kFloatsWorthAThread = size_t{1} << 14;

// The number of tasks for `work` floats in at most `pieces` independent pieces: a few for each
// thread, so that a thread that starts late has less to do.
inline size_t UsefulTasks(const ThreadPool& pool, size_t work, size_t pieces) {
  if (pool.threads() == 1) return 1;
  return std::max<size_t>(1, std::min({work / kFloatsWorthAThread, pieces, 4 * pool.threads()}));
}

// task(i) for every i in [0, tasks), on the calling thread alone when there is no pool.
template <typename Task>
void ForEachTask(ThreadPool* pool, size_t tasks, Task&& task) {
  if (pool != nullptr && tasks > 1) return pool->ParallelFor(tasks, task);
  for (size_t i = 0; i < tasks; ++i) task(i);
}

// row(r) for every r in [0, rows); `columns` floats of work each.
template <typename Row>
void ParallelRows(ThreadPool& pool, size_t rows, size_t columns, Row&& row) {
  const size_t tasks = UsefulTasks(pool, rows * columns, rows);
  pool.ParallelFor(tasks, [&](size_t task) {
    for (size_t r = rows * task / tasks; r < rows * (task + 1) / tasks; ++r) row(r);
  });
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_PARALLEL_H_
