// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_CPU_COUNT_H_
#define RIVULET_SERVER_CPU_COUNT_H_

#include <cstdint>
#include <string_view>

namespace rivulet {

// How many threads can compute at once: the cores that this process may run on, and no more than
// its control group's quota (a container's CPU limit, rounded up). More threads than the quota
// would all be stopped together for most of each period.
uint32_t UsableCpus();

// The cores that a cgroup v2 cpu.max file grants, rounded up: "250000 100000" is 3. 0: no limit, or
// no such text.
uint32_t CpusOfQuota(std::string_view cpu_max);

}  // namespace rivulet

#endif  // RIVULET_SERVER_CPU_COUNT_H_
