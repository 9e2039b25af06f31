// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Turns the events of requests into the figures of each measured phase, which docs/benchmarking.md
// explains. It decides the phase in which a token or a request is counted:
//   - rates (tokens/s, requests/s, goodput): the phase in which it happens;
//   - latencies and outcomes of requests: the phase in which the request was due, even if it ends
//     later;
//   - gaps between messages: the phase in which the later message arrived.
// Messages of a stream that arrive less than kTogether apart were ready together, after a stall of
// the server, the network or this client. They count as one message: a reader sees them at once,
// and the gaps between them would hide the stall.
// Not thread-safe: only the driver's thread calls it.
#ifndef RIVULET_CLIENT_CLI_BENCH_RECORDER_H_
#define RIVULET_CLIENT_CLI_BENCH_RECORDER_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/bench/options.h"
#include "client/cli/bench/statistics.h"
#include "rivulet/v1/inference.pb.h"

namespace rivulet::cli::bench {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

// Errors by code, and by code and text. Numbers in texts are ignored, so that "7 of 8 slots" and "8
// of 8 slots" are one kind; kinds beyond kMaxKinds count as "(other texts)".
class ErrorTable {
 public:
  static constexpr size_t kMaxKinds = 64;

  void Add(const absl::Status& status);

  uint64_t total() const;
  const std::map<std::string, uint64_t>& by_code() const { return by_code_; }
  const std::map<std::pair<std::string, std::string>, uint64_t>& by_kind() const {
    return by_kind_;
  }

 private:
  std::map<std::string, uint64_t> by_code_;
  std::map<std::pair<std::string, std::string>, uint64_t> by_kind_;
};

// The turn with one number, over all sessions.
struct TurnStatistics {
  uint64_t succeeded = 0;
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  LatencyHistogram first_token;
};

// The prompts of --interfere-prompt.
struct InterferenceStatistics {
  uint64_t succeeded = 0;
  uint64_t failed = 0;
  LatencyHistogram first_token;
};

struct PhaseStatistics {
  std::string name;
  TimePoint begin;
  TimePoint end;

  // What happened between begin and end.
  uint64_t output_tokens = 0;
  uint64_t messages = 0;       // with tokens; those that arrived together are one
  uint64_t prompt_tokens = 0;  // of the requests that succeeded
  uint64_t completed = 0;
  uint64_t good = 0;  // completed and due in the phase, and within the limits of --slo-*

  // The requests that were due in the phase.
  uint64_t due = 0;
  uint64_t succeeded = 0;
  uint64_t failed = 0;
  uint64_t cut_off = 0;       // cancelled at the end of the run
  uint64_t not_sent = 0;      // over --max-in-flight
  uint64_t wrong_length = 0;  // succeeded with another number of tokens than requested
  ErrorTable errors;          // of requests, interfering prompts and session calls
  LatencyHistogram first_token;
  LatencyHistogram end_to_end;
  LatencyHistogram per_token_mean;  // of a request of two messages: first token to last, over
                                    // tokens - 1
  LatencyHistogram send_lag;        // open loop: how late the client itself was

  LatencyHistogram token_gap;    // the gap before a message, once for each of its tokens
  LatencyHistogram message_gap;  // the same, once per message

  std::vector<TurnStatistics> turns;  // only with --turns
  InterferenceStatistics interference;

  double seconds() const { return std::chrono::duration<double>(end - begin).count(); }
  double PerSecond(uint64_t count) const {
    return seconds() > 0 ? static_cast<double>(count) / seconds() : 0;
  }
};

struct RequestRecord {
  size_t phase = 0;
  bool interfering = false;
  uint32_t turn = 0;
  uint32_t wanted_tokens = 0;
  TimePoint due = {};
  TimePoint first = {};
  TimePoint last = {};
  std::chrono::nanoseconds gap{0};  // before the last message
  uint64_t messages = 0;
  uint64_t tokens = 0;
  uint64_t late_tokens = 0;  // whose gap was over --slo-itl-ms
  v1::Usage usage = {};
};

// Far longer than reading a message that has arrived, far shorter than a step of a model.
constexpr std::chrono::microseconds kTogether(100);

class Recorder {
 public:
  explicit Recorder(const BenchOptions& options);

  void BeginPhase(const std::string& name, TimePoint now);
  void EndPhase(TimePoint now);

  RequestRecord StartRequest(TimePoint due, TimePoint now, uint32_t turn, uint32_t wanted_tokens);
  RequestRecord StartInterfering(TimePoint now);
  void OnMessage(RequestRecord& record, const v1::GenerateResponse& message, TimePoint now);
  // `cut_off`: the driver cancelled it.
  void OnEnd(const RequestRecord& record, const absl::Status& status, bool cut_off, TimePoint now);
  void OnNotSent();
  // A call that creates or deletes a session failed.
  void OnSessionError(const absl::Status& status);

  // The measured phases, in order.
  std::vector<PhaseStatistics> TakePhases();

  // Since the start, measured or not, for the progress line and the exit code.
  uint64_t total_tokens() const { return total_tokens_; }
  uint64_t total_first_tokens() const { return total_first_tokens_; }
  uint64_t total_succeeded() const { return total_succeeded_; }
  uint64_t total_failed() const { return total_failed_; }

 private:
  static constexpr size_t kOutside = 0;  // of phases_: everything outside of measured phases

  PhaseStatistics& current() { return phases_[current_]; }
  void OnTokens(RequestRecord& record, uint64_t tokens, TimePoint now);
  void BeginMessage(RequestRecord& record, TimePoint now);
  void AddTokens(RequestRecord& record, uint64_t tokens);
  void OnSuccess(const RequestRecord& record, PhaseStatistics& phase, TimePoint now);
  void OnInterferingEnd(const RequestRecord& record, const absl::Status& status, bool cut_off);
  bool MeetsLimits(const RequestRecord& record) const;
  void AddTurn(const RequestRecord& record, PhaseStatistics& phase) const;

  const BenchOptions options_;
  std::vector<PhaseStatistics> phases_;
  size_t current_ = kOutside;
  uint64_t total_tokens_ = 0;
  uint64_t total_first_tokens_ = 0;
  uint64_t total_succeeded_ = 0;
  uint64_t total_failed_ = 0;
};

}  // namespace rivulet::cli::bench

#endif  // RIVULET_CLIENT_CLI_BENCH_RECORDER_H_
