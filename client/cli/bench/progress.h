// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A progress line on the terminal. Without a terminal, nothing is written.
#ifndef RIVULET_CLIENT_CLI_BENCH_PROGRESS_H_
#define RIVULET_CLIENT_CLI_BENCH_PROGRESS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "client/cli/bench/recorder.h"

namespace rivulet::cli::bench {

struct ProgressState {
  std::string phase = {};      // for example "warm-up"
  double fraction = 0;         // of this phase, 0 to 1
  double elapsed_seconds = 0;  // since the run began
  uint64_t done = 0;
  size_t running = 0;
  uint64_t errors = 0;
  double tokens_per_second = 0;  // since the last update
};

// At most `columns` characters.
std::string ProgressLine(const ProgressState& state, size_t columns);

class Progress {
 public:
  explicit Progress(TimePoint start);
  // Erases the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Whether it is time for an update; always false without a terminal.
  bool IsDue(TimePoint now) const { return terminal_ && now >= next_; }
  // Shows `state`, with the elapsed time and the rate from `now` and the total `tokens` so far.
  void Show(ProgressState state, uint64_t tokens, TimePoint now);

 private:
  const bool terminal_;
  const TimePoint start_;
  TimePoint next_;
  TimePoint last_;
  uint64_t last_tokens_ = 0;
};

}  // namespace rivulet::cli::bench

#endif  // RIVULET_CLIENT_CLI_BENCH_PROGRESS_H_
