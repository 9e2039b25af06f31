// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/rpc/grpc_server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/log/log.h"
#include "server/rpc/services.h"
#include "server/rpc/status_map.h"
#include "server/rpc/tls_credentials.h"
#include "server/rpc/wire.h"

namespace rivulet {
namespace {

constexpr int kSecond = 1000;
constexpr const char* kServiceNames[] = {"rivulet.v1.Inference", "rivulet.v1.Sessions"};

// protobuf reports requests that do not parse; the client is told in its error.
void LogProtobuf(google::protobuf::LogLevel, const char*, int, const std::string& message) {
  LogDebug("protobuf", {{"message", message}});
}

std::atomic<bool> accepts{true};

// gRPC reports it in no other way.
void NoteDeafness(const char* message) {
  const std::string_view text(message);
  if (text.find("Failed accept") == text.npos || text.find("Too many open files") == text.npos) {
    return;
  }
  if (!accepts.exchange(false)) return;
  LogError("grpc_accepts_no_more",
           {{"error", "no file descriptor was left for a connection; raise the limit (ulimit -Hn)"},
            {"remedy", "restart the server"}});
}

// For faults in the transport: gRPC's messages name its source lines.
void LogGrpc(gpr_log_func_args* line) {
  NoteDeafness(line->message);
  const LogField fields[] = {{"message", line->message}, {"file", line->file}};
  if (line->severity == GPR_LOG_SEVERITY_ERROR) {
    LogWarning("grpc", {fields[0], fields[1]});
  } else {
    LogDebug("grpc", {fields[0], fields[1]});
  }
}

void InitOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    google::protobuf::SetLogHandler(&LogProtobuf);
    gpr_set_log_function(&LogGrpc);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    (void)NoMemory();  // while there is some
    // Never shut down: gRPC 1.51 waits at its end for timer threads, for ever if one could not be
    // started because memory was short.
    grpc_init();
  });
}

void SetChannelArguments(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessageBytes));
  builder.SetMaxSendMessageSize(static_cast<int>(kMaxMessageBytes));
  // gRPC unpacks a message before it looks at its size: 2 MB of gzip would take 2 GB of memory.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  // gRPC's default would let a second server take half of our connections without an error.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // A client whose machine is gone is noticed after 50 s, and its row cancelled.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30 * kSecond);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20 * kSecond);
  // Clients may ping as often, with and without calls.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10 * kSecond);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

}  // namespace

std::string Address(const std::string& host, int port) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

GrpcServer::GrpcServer(const ServiceContext& context, GrpcDoors doors)
    : calls_(context.calls),
      inference_(MakeInferenceService(context, chats_)),
      sessions_(MakeSessionsService(context)),
      doors_(std::move(doors)) {}

GrpcServer::~GrpcServer() { Shutdown(std::chrono::milliseconds(0)); }

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const std::string& host, int port,
                                                              const ServiceContext& context,
                                                              const TlsIdentity* tls,
                                                              GrpcDoors doors) {
  InitOnce();
  std::unique_ptr<GrpcServer> server(new GrpcServer(context, std::move(doors)));
  RIVULET_RETURN_IF_ERROR(server->Bind(host, port, tls));
  server->SetServing(true);
  return server;
}

absl::Status GrpcServer::Bind(const std::string& host, int port, const TlsIdentity* tls) {
  grpc::ServerBuilder builder;
  SetChannelArguments(builder);
  const std::string address = Address(host, port);
  credentials_ = tls == nullptr ? grpc::InsecureServerCredentials() : TlsServerCredentials(*tls);
  builder.AddListeningPort(address, credentials_, &port_);
  builder.RegisterService(inference_.get());
  builder.RegisterService(sessions_.get());
  for (const auto& door : doors_) builder.RegisterService(&door->service());
  server_ = builder.BuildAndStart();
  if (server_ != nullptr && port_ != 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot listen for gRPC on ", address,
                                             ": the port is in use or the address is not this "
                                             "machine's; choose another --listen HOST:PORT"));
}

bool GrpcServer::Accepts() { return accepts; }

void GrpcServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* const health = server_->GetHealthCheckService();
  health->SetServingStatus(serving);
  for (const char* name : kServiceNames) health->SetServingStatus(name, serving);
  for (const auto& door : doors_) {
    health->SetServingStatus(door->service_name(), serving);
    door->SetServing(serving);
  }
}

void GrpcServer::EndIdleStreams() {
  chats_.Drain();
  for (const auto& door : doors_) door->EndIdleStreams();
}

void GrpcServer::Shutdown(std::chrono::milliseconds patience) {
  if (server_ == nullptr) return;
  const int calls = calls_.WaitForNone(Clock::now() + patience);
  if (calls > 0) LogWarning("calls_cut_off", {{"calls", calls}});
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

}  // namespace rivulet
