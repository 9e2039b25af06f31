// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// gRPC code that `rivulet bench` shares with the client, as it drives calls itself; not for
// callers.
#ifndef RIVULET_CLIENT_GRPC_H_
#define RIVULET_CLIENT_GRPC_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/client.h"

namespace rivulet {

// `own_connection`: with a TCP connection of its own; gRPC shares one among equal channels.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const Access& access,
                                           bool own_connection);

// The status of the finished call of `context`, with the payload of its trailing metadata.
absl::Status ToStatus(const grpc::Status& status, const grpc::ClientContext& context);

}  // namespace rivulet

#endif  // RIVULET_CLIENT_GRPC_H_
