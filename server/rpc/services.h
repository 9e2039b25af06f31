// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The gRPC services of proto/rivulet/v1/inference.proto. Every method returns at once from gRPC's
// thread: work goes to the pool or the scheduler.
#ifndef RIVULET_SERVER_RPC_SERVICES_H_
#define RIVULET_SERVER_RPC_SERVICES_H_

#include <grpcpp/impl/codegen/service_type.h>

#include <memory>

#include "server/rpc/service_context.h"

namespace rivulet {

// Generate, Score, Tokenize, Detokenize, GetModel. Chat comes with sessions: UNIMPLEMENTED. The
// context outlives the service.
std::unique_ptr<grpc::Service> MakeInferenceService(const ServiceContext& context);

// The service Sessions: every method is UNIMPLEMENTED and says so.
std::unique_ptr<grpc::Service> MakeSessionsService();

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_SERVICES_H_
