// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Who makes a gRPC call, by when they want its answer, and in which trace; and whether a stream of
// calls may be open.
#ifndef RIVULET_SERVER_RPC_ORIGIN_H_
#define RIVULET_SERVER_RPC_ORIGIN_H_

#include <grpc/grpc_security_constants.h>
#include <grpcpp/server_context.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "server/rpc/call_metadata.h"
#include "server/rpc/open_streams.h"
#include "server/scheduler/request.h"
#include "server/security/trace_context.h"
#include "server/service/scheduled_call.h"
#include "server/service/service_context.h"

namespace rivulet {

// The client's deadline on our clock; kNoDeadline if it has none.
inline TimePoint DeadlineOf(const grpc::ServerContextBase& context) {
  // gRPC represents "none" by a time far away, which would overflow our clock.
  constexpr auto kFarAway = std::chrono::hours(24 * 365);
  const auto deadline = context.deadline();
  const auto now = std::chrono::system_clock::now();
  if (deadline > now + kFarAway) return kNoDeadline;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(deadline - now);
}

// Of the client's certificate, if gRPC has asked for one and verified it.
inline PeerNames PeerNamesOf(const grpc::ServerContextBase& context) {
  PeerNames names;
  const auto peer = context.auth_context();
  const auto add = [&](const char* property, const char* kind, bool any_case) {
    for (const grpc::string_ref& value : peer->FindPropertyValues(property)) {
      std::string text(value.data(), value.size());
      if (any_case) absl::AsciiStrToLower(&text);
      names.push_back(kind + text);
    }
  };
  if (peer == nullptr || !peer->IsPeerAuthenticated()) return names;
  add(GRPC_PEER_URI_PROPERTY_NAME, "uri:", false);
  add(GRPC_PEER_DNS_PROPERTY_NAME, "dns:", true);
  add(GRPC_X509_CN_PROPERTY_NAME, "cn:", false);
  return names;
}

// UNAUTHENTICATED and PERMISSION_DENIED, as Authenticator::Admit.
inline absl::StatusOr<CallerPtr> CallerOf(const ServiceContext& service,
                                          const grpc::ServerContextBase& context, Scope scope) {
  constexpr char kKey[] = "authorization";
  if (context.client_metadata().count(kKey) > 1) return service.authenticator.Admit("", scope);
  const std::optional<std::string_view> token = MetadataOf(context, kKey);
  if (token.has_value()) return service.authenticator.Admit(token, scope);
  return service.authenticator.Admit(token, scope, PeerNamesOf(context));
}

// Of a message that came at `arrival`. `caller`: null for a call that will be refused.
inline CallOrigin OriginOf(const char* method, const grpc::ServerContextBase& context,
                           CallerPtr caller, TimePoint arrival = Clock::now()) {
  const std::string_view trace = MetadataOf(context, kTraceParentHeader).value_or("");
  return {method, arrival, DeadlineOf(context), std::move(caller), TraceIdOf(trace)};
}

// A stream of turns begins: it is among `streams` now, or it ends. The caller is asked for again
// with each turn, but a stream without a token must not stay open for nothing.
inline void OpenFor(const ServiceContext& service, const grpc::ServerContextBase& context,
                    OpenStreams& streams, const std::shared_ptr<OpenStream>& stream) {
  absl::Status added = CallerOf(service, context, Scope::kGenerate).status();
  if (!added.ok()) CountRefusal(service.metrics, added);
  if (added.ok()) added = streams.Add(stream);
  if (!added.ok()) stream->EndWhenIdle(added);
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_ORIGIN_H_
