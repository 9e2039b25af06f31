// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/driver.h"

#include <algorithm>
#include <utility>

#include "client/grpc.h"
#include "kernels/base/check.h"

namespace rivulet::cli::bench {
namespace {

// A stream of the closed loop pauses this long after a failure, so that refused clients do not
// flood the server.
constexpr std::chrono::milliseconds kRest(50);
// The longest sleep of the loop, and so the delay of ctrl-C.
constexpr std::chrono::milliseconds kMaxSleep(100);
// With fewer failures, or a shorter time without an answer, the server may be restarting.
constexpr uint64_t kGiveUpFailures = 50;
constexpr std::chrono::seconds kGiveUpAfter(5);
// How long measuring waits for all streams of the closed loop to begin.
constexpr std::chrono::seconds kMaxRampUp(120);

// The phase with interfering prompts lasts at most this many times --duration.
constexpr double kMaxStretch = 10;

std::chrono::nanoseconds Seconds(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

std::vector<Connection> Connect(const BenchOptions& options) {
  std::vector<Connection> connections(options.connections);
  for (Connection& connection : connections) {
    const auto channel =
        MakeChannel(options.common.server, options.common.access, /*own_connection=*/true);
    connection.inference = v1::Inference::NewStub(channel);
    connection.sessions = v1::Sessions::NewStub(channel);
  }
  return connections;
}

gpr_timespec ToDeadline(std::chrono::nanoseconds from_now) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(std::max<int64_t>(from_now.count(), 0), GPR_TIMESPAN));
}

}  // namespace

Driver::Driver(const BenchOptions& options, const Workload& workload, Recorder& recorder,
               const Cancellation& cancellation)
    : options_(options),
      workload_(workload),
      recorder_(recorder),
      cancellation_(cancellation),
      connections_(Connect(options)),
      context_{options_, workload_, recorder_, queue_},
      arrivals_(options.arrival, std::max(options.rate, 1e-9), options.seed) {
  if (options.interfere_prompt > 0) {
    plans_ = {{"without", false}, {"with", true}};
  } else {
    plans_ = {{"load", false}};
  }
}

Driver::~Driver() {
  RIVULET_CHECK(jobs_.empty(), "the driver is destroyed with calls in flight");
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

Ending Driver::Run() {
  start_ = stage_begin_ = last_available_ = Clock::now();
  next_arrival_ = start_ + arrivals_.NextGap();
  progress_ = std::make_unique<Progress>(start_);
  for (TimePoint now = start_; stage_ != Stage::kDraining || !jobs_.empty(); now = Clock::now()) {
    UpdateStage(now);
    StartDueJobs(now);
    WaitForEvent(now);
    if (progress_->IsDue(now)) ShowProgress(now);
  }
  progress_.reset();
  return ending_;
}

void Driver::UpdateStage(TimePoint now) {
  if (cancellation_.cancelled()) EndEarly(Ending::kInterrupted, now);
  if (unavailable_in_a_row_ >= kGiveUpFailures && now - last_available_ > kGiveUpAfter) {
    EndEarly(Ending::kGaveUp, now);
  }
  if (stage_ == Stage::kWarmUp && WarmUpIsOver(now)) BeginNextPhase(now);
  if (stage_ == Stage::kMeasuring && PhaseIsOver(now)) {
    // A delayed client still sends what was due before the end.
    if (options_.rate > 0) StartOpenLoop(std::min(now, PhaseEnd()), now);
    recorder_.EndPhase(now);
    if (next_phase_ < plans_.size()) {
      BeginNextPhase(now);
    } else {
      // Endless streams are not waited for.
      BeginDrain(now, Seconds(options_.interfere_prompt > 0 ? 0 : options_.drain_seconds));
    }
  }
  if (stage_ == Stage::kDraining && now >= drain_end_) CutOffAll();
}

void Driver::BeginNextPhase(TimePoint now) {
  // Arrivals due until now belong to the previous stage; a phase would otherwise have one at both
  // ends.
  if (options_.rate > 0) StartOpenLoop(now, now);
  stage_ = Stage::kMeasuring;
  stage_begin_ = now;
  started_in_phase_ = 0;
  next_interfering_start_ = now;
  recorder_.BeginPhase(plans_[next_phase_++].name, now);
}

bool Driver::WarmUpIsOver(TimePoint now) const {
  const std::chrono::nanoseconds passed = now - start_;
  const std::chrono::nanoseconds warm_up = Seconds(options_.warmup_seconds);
  if (passed < warm_up) return false;
  const bool ramps_up =
      options_.rate == 0 && (options_.warmup_seconds > 0 || options_.interfere_prompt > 0);
  return !ramps_up || passed > warm_up + kMaxRampUp ||
         recorder_.total_first_tokens() + recorder_.total_failed() >= options_.concurrency;
}

TimePoint Driver::PhaseEnd() const { return stage_begin_ + Seconds(PhaseSeconds(options_)); }

bool Driver::PhaseIsOver(TimePoint now) const {
  const double passed = std::chrono::duration<double>(now - stage_begin_).count();
  if (WaitsForInterfering() && passed < kMaxStretch * PhaseSeconds(options_)) return false;
  if (passed >= PhaseSeconds(options_)) return true;
  return options_.requests > 0 && started_in_phase_ >= options_.requests && streaming_jobs_ == 0;
}

// The phase must cover the end of a prompt.
bool Driver::WaitsForInterfering() const {
  return plans_[next_phase_ - 1].interfering && interfering_over_ == 0;
}

void Driver::BeginDrain(TimePoint now, std::chrono::nanoseconds limit) {
  stage_ = Stage::kDraining;
  stage_begin_ = now;
  drain_end_ = now + limit;
}

void Driver::EndEarly(Ending ending, TimePoint now) {
  if (ending_ != Ending::kComplete) return;
  ending_ = ending;
  if (stage_ == Stage::kMeasuring) recorder_.EndPhase(now);
  BeginDrain(now, std::chrono::nanoseconds(0));
}

void Driver::CutOffAll() {
  if (std::exchange(all_cut_off_, true)) return;
  for (const auto& [job, owned] : jobs_) job->CutOff();
}

bool Driver::MayStart() const {
  if (stage_ == Stage::kDraining) return false;
  return stage_ == Stage::kWarmUp || options_.requests == 0 ||
         started_in_phase_ < options_.requests;
}

void Driver::StartDueJobs(TimePoint now) {
  if (stage_ == Stage::kDraining) return;
  if (options_.rate > 0) {
    StartOpenLoop(now, now);
  } else {
    StartClosedLoop(now);
  }
  if (stage_ == Stage::kMeasuring && plans_[next_phase_ - 1].interfering) StartInterfering(now);
}

void Driver::StartClosedLoop(TimePoint now) {
  while (!resting_.empty() && resting_.front() <= now) resting_.pop_front();
  while (streaming_jobs_ + resting_.size() < options_.concurrency && MayStart()) {
    StartJob(now, now, false);
  }
}

// What was due while the client was busy is sent late, but counts from when it was due.
void Driver::StartOpenLoop(TimePoint until, TimePoint now) {
  while (next_arrival_ <= until && MayStart()) {
    if (streaming_jobs_ < options_.max_in_flight) {
      StartJob(next_arrival_, now, false);
    } else {
      recorder_.OnNotSent();
      ++started_in_phase_;
    }
    next_arrival_ += arrivals_.NextGap();
  }
}

void Driver::StartInterfering(TimePoint now) {
  if (interfering_runs_ || now < next_interfering_start_) return;
  interfering_runs_ = true;
  StartJob(now, now, true);
}

void Driver::StartJob(TimePoint due, TimePoint now, bool interfering) {
  uint64_t& number = interfering ? next_interfering_ : next_number_;
  Connection& connection = connections_[number % connections_.size()];
  auto job = std::make_unique<Job>(context_, connection, number++, interfering);
  Job* const started = job.get();
  jobs_.emplace(started, std::move(job));
  if (!interfering) {
    ++streaming_jobs_;
    ++started_in_phase_;
  }
  started->Start(due, now);
}

TimePoint Driver::NextDue(TimePoint now) const {
  TimePoint next = now + kMaxSleep;
  if (stage_ == Stage::kDraining) return all_cut_off_ ? next : std::min(next, drain_end_);
  if (options_.rate > 0 && MayStart()) next = std::min(next, next_arrival_);
  if (!resting_.empty()) next = std::min(next, resting_.front());
  const TimePoint stage_end =
      stage_ == Stage::kWarmUp ? start_ + Seconds(options_.warmup_seconds) : PhaseEnd();
  return stage_end > now ? std::min(next, stage_end) : next;
}

void Driver::WaitForEvent(TimePoint now) {
  void* tag = nullptr;
  bool ok = false;
  const auto got = queue_.AsyncNext(&tag, &ok, ToDeadline(NextDue(now) - now));
  if (got != grpc::CompletionQueue::GOT_EVENT) return;
  Job* const job = static_cast<Job*>(tag);
  const TimePoint arrived = Clock::now();
  const uint64_t tokens = recorder_.total_tokens();
  if (!job->Proceed(ok, arrived)) OnJobOver(job, arrived);
  if (recorder_.total_tokens() > tokens) NoteAvailability(absl::OkStatus(), arrived);
}

void Driver::OnJobOver(Job* job, TimePoint now) {
  const bool failed = !job->status().ok();
  NoteAvailability(job->status(), now);
  if (job->interfering()) {
    interfering_runs_ = false;
    ++interfering_over_;
    next_interfering_start_ = failed ? now + kRest : now;
  } else {
    --streaming_jobs_;
    if (failed && options_.rate == 0) resting_.push_back(now + kRest);
  }
  jobs_.erase(job);
}

void Driver::NoteAvailability(const absl::Status& status, TimePoint now) {
  if (absl::IsUnavailable(status)) {
    ++unavailable_in_a_row_;
  } else {
    unavailable_in_a_row_ = 0;
    last_available_ = now;
  }
}

void Driver::ShowProgress(TimePoint now) {
  ProgressState state;
  state.phase = stage_ == Stage::kWarmUp     ? "warm-up"
                : stage_ == Stage::kDraining ? "drain"
                                             : plans_[next_phase_ - 1].name;
  state.fraction = StageFraction(now);
  state.done = recorder_.total_succeeded();
  state.running = jobs_.size();
  state.errors = recorder_.total_failed();
  progress_->Show(std::move(state), recorder_.total_tokens(), now);
}

double Driver::StageFraction(TimePoint now) const {
  const double passed = std::chrono::duration<double>(now - stage_begin_).count();
  if (stage_ == Stage::kDraining) return 1;
  if (stage_ == Stage::kWarmUp) return passed / std::max(options_.warmup_seconds, 1e-9);
  const double by_time = passed / PhaseSeconds(options_);
  if (options_.requests == 0) return by_time;
  const auto over =
      static_cast<double>(started_in_phase_ - std::min(started_in_phase_, streaming_jobs_));
  return std::max(by_time, over / static_cast<double>(options_.requests));
}

}  // namespace rivulet::cli::bench
