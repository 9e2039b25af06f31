// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// gRPC code shared by the client's translation units; not for callers. A RunningCall is the context
// of a call with its CallOptions applied; its Cancellation can reach it while it exists.
#ifndef RIVULET_CLIENT_RUNNING_CALL_H_
#define RIVULET_CLIENT_RUNNING_CALL_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "client/client.h"
#include "kernels/base/mutex.h"

namespace rivulet {

// `running` is the context that Cancel ends; `cancelled` is for calls that start later.
struct Cancellation::State {
  Mutex mutex;
  grpc::ClientContext* running ABSL_GUARDED_BY(mutex) = nullptr;
  bool cancelled ABSL_GUARDED_BY(mutex) = false;
};

class RunningCall {
 public:
  explicit RunningCall(const CallOptions& options);
  ~RunningCall();
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

  grpc::ClientContext* context() { return &context_; }

 private:
  grpc::ClientContext context_;
  Cancellation* const cancellation_;
};

// The status of the finished call of `context`, with the payload of its trailing metadata.
absl::Status ToStatus(const grpc::Status& status, const grpc::ClientContext& context);

}  // namespace rivulet

#endif  // RIVULET_CLIENT_RUNNING_CALL_H_
