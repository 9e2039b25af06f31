// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a client says of its call beside the request. All reading of metadata is here.
#ifndef RIVULET_SERVER_RPC_CALL_METADATA_H_
#define RIVULET_SERVER_RPC_CALL_METADATA_H_

#include <grpcpp/server_context.h>

#include <string>

namespace rivulet {

inline constexpr char kSessionIdKey[] = "x-session-id";
inline constexpr char kRequestIdKey[] = "x-request-id";

struct CallMetadata {
  std::string session_id;  // empty: none
  std::string request_id;
};

inline CallMetadata ReadMetadata(const grpc::ServerContextBase& context) {
  const auto value = [&](const char* key) {
    const auto found = context.client_metadata().find(key);
    if (found == context.client_metadata().end()) return std::string();
    return std::string(found->second.data(), found->second.size());
  };
  return {.session_id = value(kSessionIdKey), .request_id = value(kRequestIdKey)};
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_CALL_METADATA_H_
