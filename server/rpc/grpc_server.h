// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The gRPC port: our services, other doors, grpc.health.v1 and reflection; the last two need no
// token. It is bound once the model is loaded and everything behind it runs. Until then connections
// are refused, which balancers treat as "not ready".
//
// Threading: Start and destruction on one thread; all else on any.
#ifndef RIVULET_SERVER_RPC_GRPC_SERVER_H_
#define RIVULET_SERVER_RPC_GRPC_SERVER_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/rpc/grpc_door.h"
#include "server/rpc/reactors.h"
#include "server/security/tls_identity.h"
#include "server/service/service_context.h"

namespace rivulet {

// HOST:PORT, with brackets around an IPv6 address.
std::string Address(const std::string& host, int port);

using GrpcDoors = std::vector<std::unique_ptr<GrpcDoor>>;

class GrpcServer {
 public:
  // Binds and serves. Port 0: any free port (port() says which). UNAVAILABLE, naming the address,
  // when it cannot bind: a port is never shared with another process. The context outlives the
  // server, and so does `tls`; null: plain text.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const std::string& host, int port,
                                                           const ServiceContext& context,
                                                           const TlsIdentity* tls = nullptr,

                                                           GrpcDoors doors = {});
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  int port() const { return port_; }
  // False once a connection has found no file descriptor: gRPC 1.51 then never accepts again in
  // this process, and only a restart helps.
  static bool Accepts();
  // The status that grpc.health.v1 reports for every service.
  void SetServing(bool serving);
  // Streams of turns end with UNAVAILABLE as soon as no turn runs on them, new ones at once. An
  // idle stream would delay a Shutdown until its client ends it.
  void EndIdleStreams();
  // Returns when all calls have ended and all connections are closed. Calls that still run after
  // `patience` are cut off, and their clients see UNAVAILABLE; idle connections are closed at once.
  void Shutdown(std::chrono::milliseconds patience);

 private:
  GrpcServer(const ServiceContext& context, GrpcDoors doors);
  absl::Status Bind(const std::string& host, int port, const TlsIdentity* tls);

  CallCount& calls_;
  OpenStreams chats_;
  const std::unique_ptr<grpc::Service> inference_;
  const std::unique_ptr<grpc::Service> sessions_;
  const GrpcDoors doors_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;  // asked for each connection
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_GRPC_SERVER_H_
