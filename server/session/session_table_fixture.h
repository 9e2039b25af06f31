// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// For tests of SessionTable: a table of four sessions, and turns on them.
#ifndef RIVULET_SERVER_SESSION_SESSION_TABLE_FIXTURE_H_
#define RIVULET_SERVER_SESSION_SESSION_TABLE_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/engine/fake_engine.h"
#include "server/session/session_table.h"

namespace rivulet {

class SessionTableTest : public testing::Test {
 protected:
  SessionTableTest() {
    sessions_.set_on_reap([this] { ++told_; });
  }

  // A turn that leaves `tokens` tokens in the session.
  void Turn(const SessionKey& id, size_t tokens = 1) {
    auto lease = sessions_.LeaseForTurn(id);
    ASSERT_TRUE(lease.ok()) << lease.status();
    std::unique_ptr<Session> state = lease->TakeState();
    if (state == nullptr) state = Session::CreateAtRest(engine_.states(), sessions_.ledger());
    if (state->resting()) {
      ASSERT_TRUE(state->Wake().ok());
    }
    for (size_t i = 0; i < tokens; ++i) state->Append(7);
    lease->PutState(std::move(state));
  }
  uint64_t Ended(SessionEnd why) const {
    return metrics_.session_ends[static_cast<size_t>(why)].value();
  }

  SessionTable::TimePoint now_{std::chrono::seconds(1000)};
  FakeEngine engine_{8};
  Metrics metrics_;
  SessionTable sessions_{
      {.time_to_live = std::chrono::seconds(60), .max_sessions = 4, .now = [this] { return now_; }},
      metrics_};
  int told_ = 0;
};

struct Notes : SessionNotes {
  explicit Notes(size_t bytes) : held(bytes) {}
  size_t bytes() const override { return held; }
  size_t held;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SESSION_SESSION_TABLE_FIXTURE_H_
