// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// `rivulet sessions`, and the table of sessions that `rivulet chat` also prints.
#ifndef RIVULET_CLIENT_CLI_SESSIONS_H_
#define RIVULET_CLIENT_CLI_SESSIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/commands.h"

namespace rivulet::cli {

enum class SessionsAction : uint8_t { kList, kGet, kCreate, kRename, kDelete };

struct SessionsOptions {
  CommonOptions common;
  SessionsAction action = SessionsAction::kList;
  std::vector<std::string> ids;     // or names: one for kGet, at least one for kDelete
  v1::CreateSessionRequest create;  // for kCreate
  v1::UpdateSessionRequest update;  // for kRename; its id may be a name
};

// kDelete deletes all sessions that it can and returns 1 if any failed.
int RunSessions(const SessionsOptions& options, Cancellation& cancellation);

// A heading and a line for each session, most recently used first; `current_id` is marked. Names
// are escaped for terminals, since other users chose them.
std::string SessionsTable(std::vector<v1::Session> sessions, const std::string& current_id,
                          int64_t now_unix_ms);

int64_t NowUnixMs();

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_SESSIONS_H_
