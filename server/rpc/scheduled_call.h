// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What Score and the turns of Generate and Chat have in common: each becomes a request of the
// scheduler.
//
//   gRPC thread    the reactor is made; its work is handed to the worker pool
//   worker         parses, checks, tokenizes, Submit
//   dispatcher     OnReady: what the scheduler says is sent
//   gRPC thread    OnCancel: the row is cancelled
//
// A cancel may come at any point of this, before Submit too; the request is then cancelled as soon
// as it is known.
#ifndef RIVULET_SERVER_RPC_SCHEDULED_CALL_H_
#define RIVULET_SERVER_RPC_SCHEDULED_CALL_H_

#include <grpcpp/server_context.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "server/rpc/service_context.h"
#include "server/scheduler/outbox.h"
#include "server/scheduler/request.h"

namespace rivulet {

class ScheduledCall : public StreamSink {
 protected:
  // From this many on, turning log-probabilities into a message is work for the pool.
  static constexpr size_t kManyLogprobs = 512;

  // Both outlive the request. `method` is for the log; `arrival` is when the client's message came.
  ScheduledCall(const ServiceContext& service, grpc::CallbackServerContext& context,
                const char* method, TimePoint arrival);

  // Hands the request to the scheduler; messages for it then come to `sink` (this, shared). On
  // failure nothing will come.
  absl::Status Submit(std::unique_ptr<Request> request, std::weak_ptr<StreamSink> sink);
  Outbox& outbox() { return *outbox_; }

  // The client is gone, or wants no more. Any thread, any number of times.
  void CancelRequest();
  bool cancelled();

  // Logs the end, once.
  void LogEnd(const absl::Status& status, const Usage& usage);

  const ServiceContext& service_;
  grpc::CallbackServerContext& context_;
  // For the log and the client. Whoever prepares the request sets both, before Submit.
  std::string request_id_;
  std::string session_id_;

 private:
  const char* const method_;
  const TimePoint arrival_;
  std::shared_ptr<Outbox> outbox_;
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t id_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: not submitted
};

// When the client gives up, on our clock; kNoDeadline if it set none.
TimePoint DeadlineOf(const grpc::ServerContextBase& context);

// Counts what never became a request.
void CountRefusal(Metrics& metrics, const absl::Status& status);

// 16 hexadecimal digits.
std::string MakeRequestId();

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_SCHEDULED_CALL_H_
