// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_KERNELS_BASE_THREAD_SECONDS_H_
#define RIVULET_KERNELS_BASE_THREAD_SECONDS_H_

#include <time.h>

namespace rivulet {

// Seconds of processor time that this thread has run. A call takes some 100 ns.
inline double ThreadSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_THREAD_SECONDS_H_
