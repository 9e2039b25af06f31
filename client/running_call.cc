// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/running_call.h"

#include <chrono>

namespace rivulet {

RunningCall::RunningCall(const CallOptions& options) : cancellation_(options.cancellation) {
  if (options.timeout) {
    context_.set_deadline(std::chrono::system_clock::now() + *options.timeout);
  }
  if (cancellation_ == nullptr) return;
  MutexLock lock(&cancellation_->state_->mutex);
  cancellation_->state_->running = &context_;
  if (cancellation_->state_->cancelled) context_.TryCancel();
}

RunningCall::~RunningCall() {
  if (cancellation_ == nullptr) return;
  MutexLock lock(&cancellation_->state_->mutex);
  cancellation_->state_->running = nullptr;
}

// gRPC's codes and Abseil's are the same numbers.
absl::Status ToStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace rivulet
