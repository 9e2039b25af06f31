// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What SessionTable keeps of a session: for it and its leases alone.
//
// Threading: as said at the struct.
#ifndef RIVULET_SERVER_SESSION_SESSION_ENTRY_H_
#define RIVULET_SERVER_SESSION_SESSION_ENTRY_H_

#include <cstdint>
#include <list>
#include <memory>

#include "server/session/session.h"
#include "server/session/session_table.h"

namespace rivulet {

// The table's mutex guards all members except `id`, which is constant, and `state`, which belongs
// to the holder of an exclusive lease while there is one. holds_state is true while a turn has it,
// too; `busy` and last_used_unix_ms are set in copies alone.
struct SessionLease::Entry : SessionInfo {
  SessionTable::TimePoint last_used;
  std::unique_ptr<Session> state;
  std::shared_ptr<const SessionNotes> notes;
  std::shared_ptr<const SessionNotes> attachment;
  bool in_turn = false;
  bool in_table = true;
  uint32_t readers = 0;
  std::list<std::shared_ptr<Entry>>::iterator place;  // in the table's list for what it is now
  HeldBySessions held;                                // as it is counted
  HeldBySessions* held_by_tenant = nullptr;           // null: not in the table yet

  SessionKey key() const { return {tenant, id}; }
  bool leased() const { return in_turn || readers > 0; }
  // What it takes of the tokens that all sessions may hold.
  uint64_t room() const { return tokens + TokensOfNotes(notes_bytes); }
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SESSION_SESSION_ENTRY_H_
