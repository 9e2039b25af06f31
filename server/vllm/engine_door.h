// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// vLLM's engine protocol (proto/vllm/vllm_engine.proto) on the gRPC port, for gateways that
// tokenize. docs/grpc_doors.md says what of it is served.
#ifndef RIVULET_SERVER_VLLM_ENGINE_DOOR_H_
#define RIVULET_SERVER_VLLM_ENGINE_DOOR_H_

#include <memory>
#include <string>

#include "server/rpc/grpc_door.h"
#include "server/service/service_context.h"

namespace rivulet::vllm_engine {

// `folder`: of the model, with config.json. The context outlives the door.
std::unique_ptr<GrpcDoor> MakeDoor(const ServiceContext& service, const std::string& folder);

}  // namespace rivulet::vllm_engine

#endif  // RIVULET_SERVER_VLLM_ENGINE_DOOR_H_
