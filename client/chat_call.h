// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The gRPC side of a ChatStream; not for callers.
#ifndef RIVULET_CLIENT_CHAT_CALL_H_
#define RIVULET_CLIENT_CHAT_CALL_H_

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "client/chat_stream.h"
#include "client/running_call.h"
#include "rivulet/v1/inference.grpc.pb.h"

namespace rivulet {

struct ChatStream::Call {
  Call(v1::Inference::Stub& stub, const CallOptions& options)
      : running(options), stream(stub.Chat(running.context())) {}

  RunningCall running;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::ChatRequest, v1::GenerateResponse>> stream;
  std::optional<absl::Status> ended;  // used by the thread of the turns only

  // gRPC allows one write at a time; Turn and Cancel both write.
  Mutex mutex;
  bool turn_runs ABSL_GUARDED_BY(mutex) = false;
};

}  // namespace rivulet

#endif  // RIVULET_CLIENT_CHAT_CALL_H_
