// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Runs the load: starts jobs when they are due, advances them as the server responds, and goes
// through warm-up, measured phases and drain. It uses one thread, since the client often shares
// processors with the server.
#ifndef RIVULET_CLIENT_CLI_BENCH_DRIVER_H_
#define RIVULET_CLIENT_CLI_BENCH_DRIVER_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/cli/bench/job.h"
#include "client/cli/bench/options.h"
#include "client/cli/bench/progress.h"
#include "client/cli/bench/recorder.h"
#include "client/cli/bench/workload.h"
#include "client/client.h"

namespace rivulet::cli::bench {

enum class Ending {
  kComplete,
  kInterrupted,  // cancelled
  kGaveUp,       // only UNAVAILABLE for seconds
};

class Driver {
 public:
  // Borrows its arguments. Connections are opened by the first calls.
  Driver(const BenchOptions& options, const Workload& workload, Recorder& recorder,
         const Cancellation& cancellation);
  // Only before or after Run.
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Runs once. `recorder` has what was measured, also after an early end.
  Ending Run();

 private:
  enum class Stage { kWarmUp, kMeasuring, kDraining };
  struct PhasePlan {
    std::string name;
    bool interfering;
  };

  // Stages.
  void BeginNextPhase(TimePoint now);
  void UpdateStage(TimePoint now);
  bool WarmUpIsOver(TimePoint now) const;
  TimePoint PhaseEnd() const;
  bool PhaseIsOver(TimePoint now) const;
  bool WaitsForInterfering() const;
  void BeginDrain(TimePoint now, std::chrono::nanoseconds limit);
  void EndEarly(Ending ending, TimePoint now);
  void CutOffAll();

  // Load.
  bool MayStart() const;
  void StartDueJobs(TimePoint now);
  void StartClosedLoop(TimePoint now);
  // Sends what is due by `until`, which is not after `now`.
  void StartOpenLoop(TimePoint until, TimePoint now);
  void StartInterfering(TimePoint now);
  void StartJob(TimePoint due, TimePoint now, bool interfering);

  // Answers.
  void WaitForEvent(TimePoint now);
  void OnJobOver(Job* job, TimePoint now);
  void NoteAvailability(const absl::Status& status, TimePoint now);
  TimePoint NextDue(TimePoint now) const;
  void ShowProgress(TimePoint now);
  double StageFraction(TimePoint now) const;

  const BenchOptions options_;
  const Workload& workload_;
  Recorder& recorder_;
  const Cancellation& cancellation_;
  std::vector<PhasePlan> plans_;
  std::vector<Connection> connections_;
  grpc::CompletionQueue queue_;
  const JobContext context_;
  ArrivalProcess arrivals_;

  TimePoint start_;
  std::unique_ptr<Progress> progress_;
  Stage stage_ = Stage::kWarmUp;
  Ending ending_ = Ending::kComplete;
  size_t next_phase_ = 0;
  TimePoint stage_begin_;
  TimePoint drain_end_;
  bool all_cut_off_ = false;

  std::unordered_map<Job*, std::unique_ptr<Job>> jobs_;
  size_t streaming_jobs_ = 0;  // jobs_ without the interfering one
  uint64_t next_number_ = 0;
  uint64_t next_interfering_ = 0;
  uint64_t started_in_phase_ = 0;
  TimePoint next_arrival_;
  std::deque<TimePoint> resting_;  // closed loop: when failed streams may continue, ascending
  bool interfering_runs_ = false;
  uint64_t interfering_over_ = 0;
  TimePoint next_interfering_start_;
  uint64_t unavailable_in_a_row_ = 0;
  TimePoint last_available_;
};

}  // namespace rivulet::cli::bench

#endif  // RIVULET_CLIENT_CLI_BENCH_DRIVER_H_
