// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Who makes room where as many sessions exist as the table keeps.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/session/session_table_fixture.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using SessionLimitTest = SessionTableTest;

TEST_F(SessionLimitTest, SessionsWithAnAttachmentMakeRoom) {
  for (const char* const id : {"a", "b", "c", "d"}) {
    ASSERT_TRUE(sessions_.Create(id, "").ok());
    Turn(id);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(sessions_.Create("e", "").status()));
  for (const char* const id : {"b", "c"}) {
    ASSERT_TRUE(sessions_.Attach(id, std::make_shared<Notes>(1)).ok());
  }
  Turn("b");  // c is now the one used least recently
  told_ = 0;
  ASSERT_TRUE(sessions_.Create("e", "").ok());
  EXPECT_EQ(told_, 1);  // there is a state to destroy
  EXPECT_THAT(std::string(sessions_.Get("c").status().message()), HasSubstr("room was needed"));
  EXPECT_TRUE(sessions_.Get("a").ok() && sessions_.Get("b").ok());
}

TEST_F(SessionLimitTest, ATenantThatMakesManySessionsLosesItsOwn) {
  ASSERT_TRUE(sessions_.Create({"blue", "a"}, "").ok());
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(sessions_.Create({"red", ""}, "").ok());
  EXPECT_TRUE(sessions_.Get({"blue", "a"}).ok());
  EXPECT_EQ(sessions_.List({"red", ""}, 10).size(), 3u);
}

TEST_F(SessionLimitTest, TheSessionThatNeedsRoomCounts) {
  for (const char* const tenant : {"blue", "blue", "red", "red", "red"}) {
    ASSERT_TRUE(sessions_.Create({tenant, ""}, "").ok());
  }
  EXPECT_EQ(sessions_.List({"blue", ""}, 10).size(), 2u) << "though they are the oldest";
}

// Sessions that were used make no room for their own tenant, but do for one with fewer.
TEST_F(SessionLimitTest, ATenantWithForksKeepsNoOtherFromMakingSessions) {
  ASSERT_TRUE(sessions_.Create({"red", "a"}, "").ok());
  Turn({"red", "a"});
  for (const char* const id : {"b", "c", "d"}) {
    ASSERT_TRUE(sessions_.Fork({"red", "a"}, id, "", std::nullopt).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(sessions_.Create({"red", ""}, "").status()));
  ASSERT_TRUE(sessions_.Create({"blue", "a"}, "").ok());
  EXPECT_FALSE(sessions_.Get({"red", "a"}).ok()) << "the one used least recently";
  Turn({"blue", "a"});
  ASSERT_TRUE(sessions_.Attach({"blue", "a"}, std::make_shared<Notes>(1)).ok());
  EXPECT_TRUE(
      absl::IsResourceExhausted(sessions_.Fork({"red", "b"}, "e", "", std::nullopt).status()));
  EXPECT_TRUE(sessions_.Get({"blue", "a"}).ok()) << "a response that blue has kept";
}

// More memory for states or tokens would not have helped.
TEST_F(SessionLimitTest, TheReasonNamesWhatHelps) {
  for (const char* const id : {"a", "b", "c", "d", "e"}) {
    ASSERT_TRUE(sessions_.Create(id, "").ok());
  }
  EXPECT_THAT(
      std::string(sessions_.Get("a").status().message()),
      AllOf(HasSubstr("as many sessions existed as the server keeps"), HasSubstr("--session-ttl"),
            Not(HasSubstr("--state-memory")), Not(HasSubstr("--max-session-tokens"))));
  EXPECT_EQ(Ended(SessionEnd::kEvicted), 1u);
  Turn("b");
  ASSERT_TRUE(sessions_.EvictLeastRecentlyUsed());
  EXPECT_THAT(std::string(sessions_.WhyGone("b")), HasSubstr("--state-memory"));
}

// Attached or emptied before or after, with a lease or without.
TEST_F(SessionLimitTest, WhatMakesRoomIsFoundHoweverItCameAbout) {
  for (const char* const id : {"a", "b", "c", "d"}) {
    ASSERT_TRUE(sessions_.Create(id, "").ok());
    Turn(id);
  }
  const auto notes = std::make_shared<Notes>(1);
  ASSERT_TRUE(sessions_.Attach("b", notes).ok());
  ASSERT_TRUE(sessions_.Attach("b", nullptr).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(sessions_.Create("e", "").status()));
  {
    const auto lease = sessions_.LeaseForReading("c");
    ASSERT_TRUE(lease.ok());
    ASSERT_TRUE(sessions_.Attach("c", notes).ok());
    EXPECT_TRUE(absl::IsResourceExhausted(sessions_.Create("e", "").status())) << "it is read";
  }
  ASSERT_TRUE(sessions_.Create("e", "").ok());
  EXPECT_FALSE(sessions_.Get("c").ok());
  ASSERT_TRUE(sessions_.Create("f", "").ok());
  EXPECT_FALSE(sessions_.Get("e").ok()) << "it has had no turn";
  Turn("f");
  EXPECT_TRUE(absl::IsResourceExhausted(sessions_.Create("g", "").status()));
}

// It would hold up every step, since the engine's thread needs the table.
TEST_F(SessionLimitTest, ARefusalTakesNoTimeForEachSession) {
  const auto refused = [this](size_t count) {
    SessionTable sessions({.max_sessions = count}, metrics_);
    EXPECT_TRUE(sessions.Create("a", "").ok());
    auto lease = sessions.LeaseForTurn("a");
    EXPECT_TRUE(lease.ok());
    auto state = Session::CreateAtRest(engine_.states(), sessions.ledger());
    EXPECT_TRUE(state->Wake().ok());
    state->Append(7);
    lease->PutState(std::move(state));
    lease->Release();
    for (size_t i = 1; i < count; ++i) {
      EXPECT_TRUE(sessions.Fork("a", absl::StrCat("b", i), "", std::nullopt).ok());
    }
    auto shortest = std::chrono::steady_clock::duration::max();
    for (int i = 0; i < 50; ++i) {
      const auto begun = std::chrono::steady_clock::now();
      EXPECT_TRUE(absl::IsResourceExhausted(sessions.Create("c", "").status()));
      shortest = std::min(shortest, std::chrono::steady_clock::now() - begun);
    }
    return shortest;
  };
  EXPECT_LT(refused(20'000), 20 * refused(20));
}

}  // namespace
}  // namespace rivulet
