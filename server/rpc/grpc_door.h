// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Another protocol on the gRPC port: GrpcServer owns it and registers its service.
#ifndef RIVULET_SERVER_RPC_GRPC_DOOR_H_
#define RIVULET_SERVER_RPC_GRPC_DOOR_H_

#include <grpcpp/impl/codegen/service_type.h>

namespace rivulet {

class GrpcDoor {
 public:
  virtual ~GrpcDoor() = default;
  // Full, for grpc.health.v1; a constant.
  virtual const char* service_name() const = 0;
  // Lives as long as this.
  virtual grpc::Service& service() = 0;
  // What grpc.health.v1 says from now on. Any thread.
  virtual void SetServing(bool) {}
  // Streams on which nothing runs end with UNAVAILABLE, the others as soon as that is so. Any
  // thread.
  virtual void EndIdleStreams() {}
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_GRPC_DOOR_H_
