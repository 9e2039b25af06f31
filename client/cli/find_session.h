// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The session that a person means: by its id, by its name, or by the start of its id. Threads: as
// Client.
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
  kIdNameOrStart,  // not for what destroys: the start of a gone id may be that of another
};

// The first that there is: of this id, of this name, whose id begins with `key`.
// FAILED_PRECONDITION names the ids if several have the name or the start. NOT_FOUND says what
// became of the id if the server knows, and leaves it to the caller to say where sessions are
// listed.
absl::StatusOr<v1::Session> FindSession(Client& client, const std::string& key, SessionKey kind,
                                        const CallOptions& options);

// A NOT_FOUND with "; `hint`" at its end; any other status as it is.
absl::Status WithNotFoundHint(const absl::Status& status, const std::string& hint);

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_FIND_SESSION_H_
