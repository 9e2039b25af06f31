// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_RPC_TLS_CREDENTIALS_H_
#define RIVULET_SERVER_RPC_TLS_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/security/tls_identity.h"

namespace rivulet {

// Of a server that speaks TLS as `identity` is at the beginning of each connection. gRPC's own
// watcher of certificate files takes pairs that do not belong together; this asks TlsIdentity,
// which does not. The identity outlives the server.
std::shared_ptr<grpc::ServerCredentials> TlsServerCredentials(const TlsIdentity& identity);

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_TLS_CREDENTIALS_H_
