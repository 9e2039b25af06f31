// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// absl::Status → what a gRPC client sees.
#ifndef RIVULET_SERVER_RPC_STATUS_MAP_H_
#define RIVULET_SERVER_RPC_STATUS_MAP_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/base/utf8.h"
#include "server/service/call_status.h"
#include "server/text/detokenizer.h"

namespace rivulet {

// Trailing metadata with the milliseconds after which a refused request may be sent again.
inline constexpr char kRetryAfterKey[] = "retry-after-ms";
// gRPC sends messages in a header, and peers limit those to 8 KiB.
inline constexpr size_t kMaxErrorBytes = 4096;

// What is sent of an error's text. It is UTF-8, though what it quotes of a request may not be, or
// may be cut within a character: clients cannot read messages with other bytes.
inline std::string ErrorText(const absl::Status& status) {
  std::string text = ToUtf8(std::string(status.message().substr(0, kMaxErrorBytes)));
  text.resize(ValidUtf8Length(std::string_view(text).substr(0, kMaxErrorBytes)));
  return status.message().size() > kMaxErrorBytes ? text + " ..." : text;
}

// The codes of both are the same numbers.
inline grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), ErrorText(status));
}

// Ends a call of any kind of reactor, with what the status says beyond code and message. `context`
// must still live.
template <typename Reactor>
void FinishCall(Reactor& reactor, grpc::ServerContextBase& context, const absl::Status& status) {
  const std::string retry = RetryAfterMs(status);
  if (!retry.empty()) context.AddTrailingMetadata(kRetryAfterKey, retry);
  reactor.Finish(ToGrpcStatus(status));
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_STATUS_MAP_H_
