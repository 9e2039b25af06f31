// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// rivulet-linear-rate: seconds of one Linear::Apply at the shapes that
// bench/linear_against_libraries.py gives to the libraries too; one JSON object a line.
//
//   rivulet-linear-rate --threads 2
//
// As in a model, a matrix is not touched again before others have gone through the caches: calls
// rotate over copies of the weights that take 512 MiB together.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "kernels/ops/linear/linear.h"

ABSL_FLAG(uint32_t, threads, 1, "threads");
ABSL_FLAG(double, seconds, 0.4, "time to spend on each shape");

namespace rivulet {
namespace {

constexpr size_t kBytesOfCopies = size_t{512} << 20;

AlignedBuffer<float> Numbers(size_t count) {
  AlignedBuffer<float> values(count);
  uint32_t random = 1;
  for (size_t i = 0; i < count; ++i) {
    random = random * 1664525u + 1013904223u;
    values[i] = static_cast<float>(random >> 8) * 0x1p-24f - 0.5f;
  }
  return values;
}

std::vector<Linear> Copies(size_t width, DType dtype) {
  const AlignedBuffer<float> weights = Numbers(width * width);
  const size_t count = kBytesOfCopies / (width * width * DTypeSize(dtype));
  std::vector<Linear> copies;
  for (size_t i = 0; i < count; ++i) {
    copies.push_back(
        Linear::Pack({{weights.data(), DType::kFloat32, width, nullptr}}, width, dtype));
  }
  return copies;
}

// The median of the calls that fit into --seconds, at least five of them.
double MedianSeconds(const std::vector<Linear>& copies, size_t tokens, ThreadPool& pool) {
  using Clock = std::chrono::steady_clock;
  const size_t width = copies[0].inputs();
  const AlignedBuffer<float> x = Numbers(tokens * width);
  AlignedBuffer<float> y(tokens * width);
  std::vector<double> seconds;
  double total = 0;
  for (size_t i = 0; total < absl::GetFlag(FLAGS_seconds) || i < 7; ++i) {
    const Clock::time_point start = Clock::now();
    copies[i % copies.size()].Apply({x.data(), tokens, width, width},
                                    {y.data(), tokens, width, width}, pool);
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    total += took;
    if (i >= 2) seconds.push_back(took);
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

void Run() {
  ThreadPool pool(absl::GetFlag(FLAGS_threads));
  for (const size_t width : {1024, 4096}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const std::vector<Linear> copies = Copies(width, dtype);
      for (const size_t tokens : {1, 8, 64, 512}) {
        std::printf("{\"tokens\": %zu, \"width\": %zu, \"dtype\": \"%s\", \"seconds\": %.9f}\n",
                    tokens, width, DTypeName(dtype), MedianSeconds(copies, tokens, pool));
      }
    }
  }
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("times Linear::Apply: --threads 2");
  absl::ParseCommandLine(argc, argv);
  rivulet::Run();
  return 0;
}
