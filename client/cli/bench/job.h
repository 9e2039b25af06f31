// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A unit of load: a request, a session with several turns, or an interfering prompt. A state
// machine over gRPC's completion queue with one operation in flight at a time, so that one thread
// can drive any number of jobs. The job is the tag of its operations.
#ifndef RIVULET_CLIENT_CLI_BENCH_JOB_H_
#define RIVULET_CLIENT_CLI_BENCH_JOB_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "client/cli/bench/options.h"
#include "client/cli/bench/recorder.h"
#include "client/cli/bench/workload.h"
#include "rivulet/v1/inference.grpc.pb.h"

namespace rivulet::cli::bench {

// The stubs of a job's calls. Borrowed; must outlive its jobs.
struct Connection {
  std::unique_ptr<v1::Inference::Stub> inference;
  std::unique_ptr<v1::Sessions::Stub> sessions;
};
struct JobContext {
  const BenchOptions& options;
  const Workload& workload;
  Recorder& recorder;
  grpc::CompletionQueue& queue;
};

class Job {
 public:
  Job(const JobContext& context, Connection& connection, uint64_t number, bool interfering);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Starts the first operation. `due` is when it was due, at or before `now`.
  void Start(TimePoint due, TimePoint now);

  // The operation in flight ended with `ok`. Returns false when the job is over; it then has no
  // operation in the queue and may be destroyed.
  bool Proceed(bool ok, TimePoint now);

  // Cancels the running request; a session is still deleted.
  void CutOff();

  // The status of the last request or, before any, of creating the session.
  const absl::Status& status() const { return status_; }
  bool interfering() const { return interfering_; }

 private:
  enum class State { kCreating, kStarting, kReading, kFinishing, kDeleting };

  void NewCall(std::optional<std::chrono::milliseconds> timeout);
  void CreateSession();
  bool OnCreated(TimePoint now);
  void StartTurn(TimePoint due, TimePoint now);
  void Read();
  bool OnTurnEnd(TimePoint now);
  bool DeleteSession();
  v1::GenerateRequest MakeRequest() const;

  const JobContext& context_;
  Connection& connection_;
  const uint64_t number_;
  const bool interfering_;

  State state_ = State::kCreating;
  bool cut_off_ = false;
  uint32_t turn_ = 0;
  TimePoint due_;
  std::string session_id_;
  RequestRecord record_;
  absl::Status status_;

  std::optional<grpc::ClientContext> call_;
  grpc::Status grpc_status_;
  std::unique_ptr<grpc::ClientAsyncReader<v1::GenerateResponse>> stream_;
  v1::GenerateResponse message_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::Session>> creation_;
  v1::Session session_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::DeleteSessionResponse>> deletion_;
  v1::DeleteSessionResponse deleted_;
};

}  // namespace rivulet::cli::bench

#endif  // RIVULET_CLIENT_CLI_BENCH_JOB_H_
