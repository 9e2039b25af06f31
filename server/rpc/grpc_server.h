// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The gRPC port: our services, grpc.health.v1 and reflection. It is bound when the model is loaded
// and everything behind it runs: until then a probe finds no server, which every balancer reads as
// "not ready", and no state between the two has to be kept.
//
// Threading: Start and destruction on one thread; all else on any.
#ifndef RIVULET_SERVER_RPC_GRPC_SERVER_H_
#define RIVULET_SERVER_RPC_GRPC_SERVER_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/rpc/service_context.h"

namespace rivulet {

class GrpcServer {
 public:
  // Binds and serves. Port 0: any free port (port() says which). UNAVAILABLE, naming the address,
  // when it cannot bind: a port is never shared with another process. The context outlives the
  // server.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const std::string& host, int port,
                                                           const ServiceContext& context);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  int port() const;
  // False from when a connection has found no file descriptor: gRPC 1.51 then accepts none ever
  // again, in this process, and only a restart helps.
  static bool Accepts();
  // What grpc.health.v1 says of every service.
  void SetServing(bool serving);
  // Chat streams end with UNAVAILABLE as soon as no turn runs on them, new ones at once: a stream
  // without a turn would hold up a Shutdown for as long as its client likes.
  void EndIdleStreams();
  // Returns when all calls have ended and all connections are closed. Calls that still run after
  // `patience` are cut off, and their clients see UNAVAILABLE; idle connections are closed at once.
  void Shutdown(std::chrono::milliseconds patience);

 private:
  struct Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_GRPC_SERVER_H_
