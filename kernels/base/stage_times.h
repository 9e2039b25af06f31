// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Where the time of a layer goes, stage by stage, for benchmarks. A step may carry StageTimes; in a
// server it carries none, and a StageTimer then costs one comparison.
//
// Threading: one thread, the one that runs the step.
#ifndef RIVULET_KERNELS_BASE_STAGE_TIMES_H_
#define RIVULET_KERNELS_BASE_STAGE_TIMES_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace rivulet {

// What is in none of them is preparation: padding, activations, gates, rotary positions.
enum class Stage : uint8_t { kProjection, kConvolution, kRecurrence, kNorm, kOutput };
inline constexpr size_t kStages = 5;

struct StageTimes {
  struct Total {
    double seconds = 0;
    size_t weight_bytes = 0;  // read by the stage
  };
  std::array<Total, kStages> stages;

  Total& operator[](Stage stage) { return stages[static_cast<size_t>(stage)]; }
};

// Adds its own lifetime to a stage.
class StageTimer {
 public:
  StageTimer(StageTimes* times, Stage stage, size_t weight_bytes = 0) {
    if (times == nullptr) return;
    total_ = &(*times)[stage];
    total_->weight_bytes += weight_bytes;
    start_ = Clock::now();
  }
  ~StageTimer() {
    if (total_ == nullptr) return;
    total_->seconds += std::chrono::duration<double>(Clock::now() - start_).count();
  }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  StageTimes::Total* total_ = nullptr;
  Clock::time_point start_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_STAGE_TIMES_H_
