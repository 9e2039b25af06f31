// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// KServe's inference protocol, version 2, with Triton's extensions
// (proto/kserve/grpc_service.proto) on the gRPC port. docs/grpc_doors.md says what of it is served.
#ifndef RIVULET_SERVER_KSERVE_INFER_DOOR_H_
#define RIVULET_SERVER_KSERVE_INFER_DOOR_H_

#include <memory>

#include "server/rpc/grpc_door.h"
#include "server/service/service_context.h"

namespace rivulet::kserve {

// The context outlives the door.
std::unique_ptr<GrpcDoor> MakeDoor(const ServiceContext& service);

}  // namespace rivulet::kserve

#endif  // RIVULET_SERVER_KSERVE_INFER_DOOR_H_
