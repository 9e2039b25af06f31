// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Finds a session by its id, its name, or the start of its id. Threading: as Client.
#ifndef RIVULET_CLIENT_CLI_FIND_SESSION_H_
#define RIVULET_CLIENT_CLI_FIND_SESSION_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client.h"

namespace rivulet::cli {

enum class SessionKey : uint8_t {
  kIdOrName,
  kIdNameOrStart,  // not for deletion: the start of a deleted session's id may match another
};

// The session with this id, else the one with this name, else the one whose id begins with `key`.
// FAILED_PRECONDITION lists the ids if several match. NOT_FOUND says what happened to the session
// if the server knows; the caller adds where sessions are listed.
absl::StatusOr<v1::Session> FindSession(Client& client, const std::string& key, SessionKey kind,
                                        const CallOptions& options);

// Appends "; `hint`" to a NOT_FOUND; other statuses are returned unchanged.
absl::Status WithNotFoundHint(const absl::Status& status, const std::string& hint);

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_FIND_SESSION_H_
