// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The gRPC services of proto/rivulet/v1/inference.proto. Every method returns at once from gRPC's
// thread; the work is done by the pool or the scheduler.
#ifndef RIVULET_SERVER_RPC_SERVICES_H_
#define RIVULET_SERVER_RPC_SERVICES_H_

#include <grpcpp/impl/codegen/service_type.h>

#include <memory>

#include "absl/status/status.h"
#include "rivulet/v1/inference.pb.h"
#include "server/rpc/reactors.h"
#include "server/service/service_context.h"

namespace rivulet {

// All outlive the services.
std::unique_ptr<grpc::Service> MakeInferenceService(const ServiceContext& context,
                                                    OpenStreams& chats);
std::unique_ptr<grpc::Service> MakeSessionsService(const ServiceContext& context);

// The methods that need neither scheduler nor engine: pure functions, to be called on a worker.
// FAILED_PRECONDITION without a tokenizer.
absl::Status Tokenize(const ServedModel& model, const v1::TokenizeRequest& request,
                      v1::TokenizeResponse& response);
absl::Status Detokenize(const ServedModel& model, const v1::DetokenizeRequest& request,
                        v1::DetokenizeResponse& response);

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_SERVICES_H_
