// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Where and when something was measured, for the reports of benchmarks.
#ifndef RIVULET_KERNELS_BASE_MACHINE_H_
#define RIVULET_KERNELS_BASE_MACHINE_H_

#include <string>

namespace rivulet {

// As /proc/cpuinfo names the processor; else the architecture.
std::string ProcessorName();

// "2026-11-21T15:16:52Z".
std::string UtcNow();

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_MACHINE_H_
