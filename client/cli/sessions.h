// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// `rivulet sessions`, and what `rivulet chat` also needs: finding a session by its id, its name, or
// the start of its id, and the table of sessions. Threading: as Client.
#ifndef RIVULET_CLIENT_CLI_SESSIONS_H_
#define RIVULET_CLIENT_CLI_SESSIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/commands.h"

namespace rivulet::cli {

enum class SessionsAction : uint8_t {
  kList,
  kTree,
  kGet,
  kCreate,
  kRename,
  kFork,
  kRewind,
  kDelete
};

struct SessionsOptions {
  CommonOptions common;
  SessionsAction action = SessionsAction::kList;
  std::vector<std::string> ids;     // or names: one for kGet, at least one for kDelete
  v1::CreateSessionRequest create;  // for kCreate
  v1::UpdateSessionRequest update;  // for kRename; its id may be a name
  v1::ForkSessionRequest fork;      // for kFork; likewise
  v1::RewindSessionRequest rewind;  // for kRewind; likewise
};

// kDelete deletes all sessions that it can and returns 1 if any failed.
int RunSessions(const SessionsOptions& options, Cancellation& cancellation);

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

// A heading and a line for each session, most recently used first; `current_id` is marked. Names
// are escaped for terminals, since other users chose them.
std::string SessionsTable(std::vector<v1::Session> sessions, const std::string& current_id,
                          int64_t now_unix_ms);

// The sessions as a tree of forks, a line each: those that are not forks, or whose original is
// gone, stand at the left. Otherwise as SessionsTable.
std::string SessionsTree(const std::vector<v1::Session>& sessions, const std::string& current_id);

// The sessions in the order of that tree: each is followed by its forks.
std::vector<v1::Session> InTreeOrder(const std::vector<v1::Session>& sessions);

int64_t NowUnixMs();

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_SESSIONS_H_
