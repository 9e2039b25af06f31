// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the client's translation units share of gRPC; not for callers. The context of a call with
// its CallOptions applied, known to its Cancellation while it lives.
#ifndef RIVULET_CLIENT_RUNNING_CALL_H_
#define RIVULET_CLIENT_RUNNING_CALL_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "client/client.h"
#include "kernels/base/mutex.h"

namespace rivulet {

// The context of the running call, so that Cancel can reach it, and whether Cancel came first.
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

// The end of the call of `context`, with what its trailing metadata adds.
absl::Status ToStatus(const grpc::Status& status, const grpc::ClientContext& context);

}  // namespace rivulet

#endif  // RIVULET_CLIENT_RUNNING_CALL_H_
