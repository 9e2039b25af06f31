// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/cpu_count.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>

namespace rivulet {
namespace {

// Inside a container its own group is the root of what it sees.
constexpr const char* kCpuMax = "/sys/fs/cgroup/cpu.max";

}  // namespace

uint32_t CpusOfQuota(std::string_view cpu_max) {
  std::istringstream text{std::string(cpu_max)};
  double quota = 0, period = 0;
  if (!(text >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return static_cast<uint32_t>(std::min((quota + period - 1) / period, 65536.0));
}

uint32_t UsableCpus() {
  const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::ifstream file(kCpuMax);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const uint32_t quota = CpusOfQuota(text);
  return quota == 0 ? cores : std::min(cores, quota);
}

}  // namespace rivulet
