// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a client says of its call beside the request. All reading of metadata is here.
#ifndef RIVULET_SERVER_RPC_CALL_METADATA_H_
#define RIVULET_SERVER_RPC_CALL_METADATA_H_

#include <grpcpp/server_context.h>

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace rivulet {

inline constexpr char kSessionIdKey[] = "x-session-id";
inline constexpr char kRequestIdKey[] = "x-request-id";

// The first value of a key, in lower case; valid as long as the context.
inline std::optional<std::string_view> MetadataOf(const grpc::ServerContextBase& context,
                                                  const char* key) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  return std::string_view(found->second.data(), found->second.size());
}

struct CallMetadata {
  std::string session_id;  // empty: none
  std::string request_id;
};

// INVALID_ARGUMENT: one of them is there twice, and programs disagree about which of the two
// counts; or a session is named by nothing, and a reply without it would be silently wrong.
inline absl::StatusOr<CallMetadata> ReadMetadata(const grpc::ServerContextBase& context) {
  for (const char* const key : {kSessionIdKey, kRequestIdKey}) {
    if (context.client_metadata().count(key) <= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": the metadata is there twice; send it once"));
  }
  if (MetadataOf(context, kSessionIdKey) == "") {
    return absl::InvalidArgumentError(
        absl::StrCat(kSessionIdKey, ": it is empty; leave it out, or name one"));
  }
  const auto value = [&](const char* key) {
    return std::string(MetadataOf(context, key).value_or(""));
  };
  return CallMetadata{.session_id = value(kSessionIdKey), .request_id = value(kRequestIdKey)};
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_CALL_METADATA_H_
