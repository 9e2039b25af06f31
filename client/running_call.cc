// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/running_call.h"

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

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

// gRPC and Abseil use the same numbers for codes.
absl::Status ToStatus(const grpc::Status& status, const grpc::ClientContext& context) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto wait = metadata.find("retry-after-ms");
  if (wait == metadata.end()) return result;
  result.SetPayload(kRetryAfterPayload,
                    absl::Cord(absl::string_view(wait->second.data(), wait->second.size())));
  return result;
}

std::optional<std::chrono::milliseconds> RetryAfter(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryAfterPayload);
  uint32_t count = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &count)) return std::nullopt;
  return std::chrono::milliseconds(count);
}

}  // namespace rivulet
