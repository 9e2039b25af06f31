// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What Generate and Score have in common: a call that becomes a request of the scheduler.
//
//   gRPC thread    the reactor is made; Prepare is handed to the worker pool
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

  // Both outlive the call. `method` is for the log.
  ScheduledCall(const ServiceContext& service, grpc::CallbackServerContext& context,
                const char* method);

  // Hands the request to the scheduler; messages for it then come to `sink` (this, shared). On
  // failure nothing will come.
  absl::Status Submit(std::unique_ptr<Request> request, std::weak_ptr<StreamSink> sink);
  Outbox& outbox() { return *outbox_; }

  // From OnCancel, and when a write fails. Any thread, any number of times.
  void CancelRequest();
  bool cancelled();

  // Once, before the call's Finish: adds error details and logs the call.
  void NoteEnd(const absl::Status& status, const Usage& usage);
  // Counts a call that never became a request.
  void CountRefusal(const absl::Status& status);

  const ServiceContext& service_;
  grpc::CallbackServerContext& context_;
  std::string request_id_;

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

// 16 hexadecimal digits.
std::string MakeRequestId();

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_SCHEDULED_CALL_H_
