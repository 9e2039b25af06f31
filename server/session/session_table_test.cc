// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/session/session_table.h"

#include <malloc.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/fake_engine.h"
#include "server/session/session_table_fixture.h"

namespace rivulet {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST_F(SessionTableTest, AnAttachmentLivesAndCountsWithItsSession) {
  EXPECT_TRUE(absl::IsNotFound(sessions_.Attach("a", std::make_shared<Notes>(1))));
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  Turn("a", 3);
  EXPECT_EQ(*sessions_.Attachment("a"), nullptr);
  const auto attached = std::make_shared<Notes>(400);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(sessions_.Attach("a", attached).ok());
    EXPECT_EQ(sessions_.tokens(), 103u);
    EXPECT_EQ(sessions_.idle_tokens(), 103u);
  }
  {
    const auto lease = sessions_.LeaseForTurn("a");  // it may come while a turn runs
    EXPECT_EQ(sessions_.idle_tokens(), 0u);
    ASSERT_TRUE(sessions_.Attach("a", std::make_shared<Notes>(4)).ok());
    EXPECT_EQ(sessions_.idle_tokens(), 0u);
  }
  EXPECT_EQ(sessions_.idle_tokens(), 4u);
  ASSERT_TRUE(sessions_.Attach("a", attached).ok());
  ASSERT_TRUE(sessions_.Fork("a", "b", "", std::nullopt).ok());
  EXPECT_EQ(*sessions_.Attachment("b"), nullptr);
  EXPECT_EQ(*sessions_.Attachment("a"), attached);
  ASSERT_TRUE(sessions_.Delete("a").ok());
  EXPECT_TRUE(absl::IsNotFound(sessions_.Attachment("a").status()));
  EXPECT_EQ(sessions_.idle_tokens(), 3u);
}

TEST_F(SessionTableTest, NotesCountAsTokens) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  Turn("a", 3);
  const auto expect = [&](size_t bytes, uint64_t tokens) {
    EXPECT_EQ(sessions_.Get("a")->notes_bytes, bytes);
    EXPECT_EQ(sessions_.tokens(), tokens);
    EXPECT_EQ(sessions_.idle_tokens(), tokens);
    EXPECT_EQ(metrics_.session_notes_bytes.value(), static_cast<int64_t>(bytes));
  };
  sessions_.LeaseForTurn("a")->SetNotes(std::make_shared<Notes>(9));
  expect(9, 3 + 3);
  {
    auto lease = sessions_.LeaseForTurn("a");
    EXPECT_EQ(sessions_.idle_tokens(), 0u);
    lease->SetNotes(std::make_shared<Notes>(4));
    EXPECT_EQ(sessions_.tokens(), 3u + 1u);
  }
  expect(4, 3 + 1);
  sessions_.LeaseForTurn("a")->SetNotes(nullptr);
  expect(0, 3);
  sessions_.LeaseForTurn("a")->SetNotes(std::make_shared<Notes>(100));
  ASSERT_TRUE(sessions_.Delete("a").ok());
  sessions_.Reap();
  EXPECT_EQ(sessions_.tokens(), 0u);
  EXPECT_EQ(sessions_.idle_tokens(), 0u);
  EXPECT_EQ(metrics_.session_notes_bytes.value(), 0);
}

TEST_F(SessionTableTest, CreateGetListDelete) {
  ASSERT_TRUE(sessions_.Create("b", "the second").ok());
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  const auto made_up = sessions_.Create("", "unnamed");
  ASSERT_TRUE(made_up.ok());
  EXPECT_EQ(made_up->id.size(), 16u);
  const auto info = sessions_.Get("b");
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->name, "the second");
  EXPECT_FALSE(info->busy);
  EXPECT_FALSE(info->holds_state);
  EXPECT_EQ(info->tokens, 0u);
  EXPECT_GT(info->created_unix_ms, 1700000000000) << "milliseconds since 1970";
  EXPECT_EQ(metrics_.sessions.value(), 3);

  std::vector<std::string> ids;
  for (const SessionInfo& session : sessions_.List("", 100)) ids.push_back(session.id);
  EXPECT_THAT(ids, testing::UnorderedElementsAre("a", "b", made_up->id));
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
  EXPECT_EQ(sessions_.List("", 1).size(), 1u);
  EXPECT_EQ(sessions_.List("b", 100).size(), made_up->id > "b" ? 1u : 0u);

  EXPECT_TRUE(sessions_.Delete("a").ok());
  EXPECT_EQ(sessions_.List("", SIZE_MAX).size(), 2u);
  EXPECT_EQ(told_, 1) << "of the first that will expire; what was deleted held no state";
  EXPECT_THAT(std::string(sessions_.Get("a").status().message()), HasSubstr("it was deleted"));
}

TEST_F(SessionTableTest, RefusesBadIdsNamesAndTooMany) {
  EXPECT_TRUE(absl::IsInvalidArgument(sessions_.Create("a b", "").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(sessions_.Create("a\n", "").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(sessions_.Create(std::string(129, 'a'), "").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(sessions_.Create("a", std::string(257, 'n')).status()));
  for (const char* id : {"a", "b", "c", "d"}) ASSERT_TRUE(sessions_.Create(id, "").ok());
  Turn("a");
  Turn("b");
  ASSERT_TRUE(sessions_.Create("e", "").ok()) << "the oldest that was never used makes room";
  EXPECT_TRUE(absl::IsNotFound(sessions_.Get("c").status()));
  Turn("d");
  Turn("e");
  const absl::Status full = sessions_.Create("f", "").status();
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_THAT(std::string(full.message()), HasSubstr("--session-ttl"));
  EXPECT_TRUE(sessions_.Delete("a").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(sessions_.Create("b", "").status()));
  EXPECT_TRUE(absl::IsNotFound(sessions_.Get("unknown").status()));
}

// The error repeated the id: 10 MB came back, and escape sequences.
TEST_F(SessionTableTest, WhatCannotBeAnIdIsNotLookedFor) {
  for (const std::string& id : {std::string(129, 'x'), std::string("\x1b[2J")}) {
    for (const absl::Status& status :
         {sessions_.Get(id).status(), sessions_.Delete(id), sessions_.LeaseForTurn(id).status()}) {
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      EXPECT_THAT(std::string(status.message()), Not(HasSubstr(id)));
    }
  }
}

// A name is no state: neither a turn nor the time to live has to do with it.
TEST_F(SessionTableTest, RenamesAtAnyTimeAndUsesNothing) {
  ASSERT_TRUE(sessions_.Create("a", "before").ok());
  const int64_t used = sessions_.Get("a")->last_used_unix_ms;
  now_ += seconds(30);
  const auto info = sessions_.Rename("a", "after");
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->name, "after");
  EXPECT_EQ(info->last_used_unix_ms, used);
  EXPECT_EQ(sessions_.NextExpiry(), now_ + seconds(30));
  EXPECT_TRUE(absl::IsInvalidArgument(sessions_.Rename("a", std::string(257, 'n')).status()));
  EXPECT_EQ(sessions_.Get("a")->name, "after");
  auto turn = sessions_.LeaseForTurn("a");
  const auto busy = sessions_.Rename("a", "");
  ASSERT_TRUE(busy.ok()) << busy.status();
  EXPECT_TRUE(busy->busy);
  turn->Release();
  EXPECT_EQ(sessions_.Get("a")->name, "");
  ASSERT_TRUE(sessions_.Delete("a").ok());
  EXPECT_THAT(std::string(sessions_.Rename("a", "late").status().message()),
              HasSubstr("it was deleted"));
}

TEST_F(SessionTableTest, OneTurnAtATime) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  auto turn = sessions_.LeaseForTurn("a");
  ASSERT_TRUE(turn.ok());
  EXPECT_TRUE(sessions_.Get("a")->busy);
  EXPECT_TRUE(absl::IsAborted(sessions_.LeaseForTurn("a").status()));
  EXPECT_TRUE(absl::IsAborted(sessions_.LeaseForReading("a").status()));
  EXPECT_TRUE(absl::IsAborted(sessions_.Delete("a")));
  SessionLease moved = *std::move(turn);
  EXPECT_TRUE(absl::IsAborted(sessions_.LeaseForTurn("a").status())) << "a moved lease still holds";
  moved.Release();
  EXPECT_FALSE(sessions_.Get("a")->busy);
  EXPECT_TRUE(sessions_.LeaseForTurn("a").ok());
  EXPECT_TRUE(sessions_.Delete("a").ok()) << "the lease above lived as long as its line";
}

TEST_F(SessionTableTest, SeveralMayReadButNotAfterATurnHasItsLease) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  auto one = sessions_.LeaseForReading("a");
  auto two = sessions_.LeaseForReading("a");
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_FALSE(one->alone());
  one->Release();
  EXPECT_TRUE(two->alone());
  two->Release();
  const auto turn = sessions_.LeaseForTurn("a");
  EXPECT_TRUE(absl::IsAborted(sessions_.LeaseForReading("a").status()));
}

TEST_F(SessionTableTest, ATurnWaitsForTheReadersBeforeItAndForNoOther) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  auto one = sessions_.LeaseForReading("a");
  auto two = sessions_.LeaseForReading("a");
  const auto turn = sessions_.LeaseForTurn("a");
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_TRUE(absl::IsAborted(sessions_.LeaseForReading("a").status()));
  EXPECT_TRUE(absl::IsAborted(sessions_.LeaseForTurn("a").status()));
  one->Release();
  EXPECT_FALSE(turn->alone());
  const int told = told_;
  two->Release();
  EXPECT_TRUE(turn->alone());
  EXPECT_EQ(told_, told + 1) << "the scheduler waits for this";
}

TEST_F(SessionTableTest, ATurnThatIsGivenUpLetsReadersInAgain) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  auto reader = sessions_.LeaseForReading("a");
  sessions_.LeaseForTurn("a")->Release();
  EXPECT_TRUE(sessions_.LeaseForReading("a").ok());
  EXPECT_TRUE(sessions_.Get("a")->busy);
  reader->Release();
  EXPECT_FALSE(sessions_.Get("a")->busy);
}

TEST_F(SessionTableTest, StateComesBackWithItsTokens) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  Turn("a", 5);
  EXPECT_EQ(sessions_.Get("a")->tokens, 5u);
  EXPECT_TRUE(sessions_.Get("a")->holds_state);
  EXPECT_EQ(sessions_.states(), 1u);
  {
    auto lease = sessions_.LeaseForTurn("a");
    EXPECT_EQ(lease->tokens(), 5u);
    std::unique_ptr<Session> state = lease->TakeState();
    EXPECT_EQ(sessions_.states(), 0u);
    EXPECT_EQ(state->tokens().size(), 5u);
    lease->PutState(std::move(state));
  }
  EXPECT_EQ(engine_.states().tails().used(), 1u);
  const int told = told_;
  EXPECT_TRUE(sessions_.Delete("a").ok());
  EXPECT_EQ(told_, told + 1);
  EXPECT_EQ(engine_.states().tails().used(), 1u) << "states die on the engine thread";
  sessions_.Reap();
  EXPECT_EQ(engine_.states().tails().used(), 0u);
  EXPECT_EQ(engine_.states().bases().used(), 0u);
}

TEST_F(SessionTableTest, EvictsTheLeastRecentlyUsedThatIsIdleAndHoldsState) {
  for (const char* id : {"a", "b", "c", "empty"}) ASSERT_TRUE(sessions_.Create(id, "").ok());
  for (const char* id : {"a", "b", "c", "a"}) {
    now_ += seconds(1);
    Turn(id);
  }
  auto busy = sessions_.LeaseForTurn("b");
  EXPECT_EQ(sessions_.idle_states(), 2u);
  EXPECT_TRUE(sessions_.EvictLeastRecentlyUsed());
  EXPECT_THAT(std::string(sessions_.Get("c").status().message()), HasSubstr("--state-memory"));
  EXPECT_TRUE(sessions_.EvictLeastRecentlyUsed());
  EXPECT_TRUE(absl::IsNotFound(sessions_.Get("a").status()));
  EXPECT_FALSE(sessions_.EvictLeastRecentlyUsed()) << "b is busy, the other holds nothing";
  EXPECT_EQ(Ended(SessionEnd::kEvicted), 2u);
  EXPECT_EQ(engine_.states().tails().used(), 1u);
}

TEST_F(SessionTableTest, EvictsThoseOfTheTenantsThatAreNamed) {
  for (const SessionKey& key : {SessionKey("blue", "a"), SessionKey("red", "a"),
                                SessionKey("red", "b"), SessionKey("red", "c")}) {
    now_ += seconds(1);
    ASSERT_TRUE(sessions_.Create(key, "").ok());
    Turn(key, 100);
  }
  const auto held = [&](uint64_t HeldBySessions::*what) {
    TenantAmounts amounts;
    sessions_.AddHeld(what, amounts);
    return amounts;
  };
  EXPECT_EQ(held(&HeldBySessions::tokens), (TenantAmounts{{"blue", 100}, {"red", 300}}));
  EXPECT_EQ(held(&HeldBySessions::sessions), (TenantAmounts{{"blue", 1}, {"red", 3}}));
  const TenantAmounts bytes = held(&HeldBySessions::bytes);
  EXPECT_EQ(bytes.at("red"), 3 * bytes.at("blue"));
  Losers order(bytes, "blue");
  const TenantNames over = *order.Next();
  EXPECT_THAT(over, ElementsAre("red"));
  EXPECT_TRUE(sessions_.EvictLeastRecentlyUsed(&over));
  EXPECT_FALSE(sessions_.Get({"red", "a"}).ok());
  {
    auto busy = sessions_.LeaseForTurn({"red", "b"});
    EXPECT_EQ(held(&HeldBySessions::tokens).at("red"), 200u) << "what runs counts";
    EXPECT_EQ(held(&HeldBySessions::bytes).at("red"), 2 * bytes.at("blue"));
    std::unique_ptr<Session> state = busy->TakeState();
    EXPECT_EQ(held(&HeldBySessions::bytes).at("red"), bytes.at("blue")) << "the turn has it";
    busy->PutState(std::move(state));
    EXPECT_EQ(held(&HeldBySessions::bytes).at("red"), 2 * bytes.at("blue"));
    EXPECT_TRUE(sessions_.EvictLeastRecentlyUsed(&over));
    EXPECT_FALSE(sessions_.Get({"red", "c"}).ok());
    EXPECT_FALSE(sessions_.EvictLeastRecentlyUsed(&over));
  }
  const TenantAmounts equal = held(&HeldBySessions::bytes);
  Losers both(equal);
  EXPECT_THAT(*both.Next(), ElementsAre("blue", "red"));
  EXPECT_EQ(both.Next(), nullptr);
  EXPECT_TRUE(sessions_.EvictLeastRecentlyUsed());
  EXPECT_FALSE(sessions_.Get({"blue", "a"}).ok()) << "the one used least recently";
  ASSERT_TRUE(sessions_.Delete({"red", "b"}).ok());
  EXPECT_TRUE(held(&HeldBySessions::bytes).empty());
}

TEST_F(SessionTableTest, ATenantThatIsNotServedLosesItsSessions) {
  for (const SessionKey& key : {SessionKey("blue", "a"), SessionKey("red", "a"),
                                SessionKey("red", "b"), SessionKey("red", "c")}) {
    ASSERT_TRUE(sessions_.Create(key, "").ok());
    if (key.id != "c") Turn(key);
  }
  {
    auto busy = sessions_.LeaseForTurn({"red", "b"});
    std::unique_ptr<Session> state = busy->TakeState();
    sessions_.ServeTenants({"blue", "green"});
    EXPECT_THAT(sessions_.Get({"red", "a"}).status().message(), HasSubstr("left the server's"));
    EXPECT_FALSE(sessions_.Get({"red", "c"}).ok()) << "it was never used";
    EXPECT_TRUE(sessions_.Get({"red", "b"}).ok()) << "its turn has not ended";
    EXPECT_TRUE(sessions_.Get({"blue", "a"}).ok());
    busy->PutState(std::move(state));
  }
  EXPECT_FALSE(sessions_.Get({"red", "b"}).ok());
  EXPECT_EQ(Ended(SessionEnd::kTenantLeft), 3u);
  EXPECT_EQ(sessions_.idle_states(), 3u) << "two wait for the engine thread";
  sessions_.Reap();
  EXPECT_EQ(engine_.states().tails().used(), 1u);
  EXPECT_EQ(sessions_.idle_tokens(), sessions_.Get({"blue", "a"})->tokens);
  EXPECT_TRUE(absl::IsPermissionDenied(sessions_.Create({"red", "d"}, "").status()));
  sessions_.ServeTenants({"red"});
  EXPECT_FALSE(sessions_.Get({"blue", "a"}).ok());
  EXPECT_TRUE(sessions_.Create({"red", "a"}, "").ok()) << "without what it held";
  EXPECT_EQ(sessions_.Get({"red", "a"})->tokens, 0u);
}

// More than are looked at while others wait; the lease of a reader ends last.
TEST_F(SessionTableTest, ThousandsOfSessionsAreClosed) {
  SessionTable many({.max_sessions = 5000, .now = [this] { return now_; }}, metrics_);
  for (int i = 0; i < 4000; ++i) {
    ASSERT_TRUE(many.Create({i % 4 == 0 ? "blue" : "red", std::to_string(i)}, "").ok());
  }
  {
    const auto reader = many.LeaseForReading({"red", "1"});
    many.ServeTenants({"blue"});
    EXPECT_EQ(many.List({"red", ""}, 5000).size(), 1u);
  }
  EXPECT_TRUE(many.List({"red", ""}, 5000).empty());
  EXPECT_EQ(many.List({"blue", ""}, 5000).size(), 1000u);
}

TEST(LosersTest, ThoseWithTheMostComeFirstAndNoneWithLess) {
  const TenantAmounts held = {{"a", 5},  {"b", 90}, {"c", 40}, {"d", 70},
                              {"e", 40}, {"f", 0},  {"g", 60}};
  Losers of_c(held, "c");
  EXPECT_THAT(*of_c.Next(), ElementsAre("b"));
  EXPECT_THAT(*of_c.Next(), ElementsAre("b", "d"));
  EXPECT_THAT(*of_c.Next(), ElementsAre("b", "c", "d", "e", "g"));
  EXPECT_EQ(of_c.Next(), nullptr);
  Losers of_a_newcomer(held, "z");
  for (size_t count : {1, 2, 5, 6}) EXPECT_EQ(of_a_newcomer.Next()->size(), count);
  EXPECT_EQ(of_a_newcomer.Next(), nullptr);
  Losers of_none(TenantAmounts{});
  EXPECT_EQ(of_none.Next(), nullptr);
}

// Ten thousand copies of a million tokens would be 40 GB of token ids alone, and there are slots
// for eight states.
TEST_F(SessionTableTest, TenThousandForksOfAMillionTokensTakeLittle) {
  constexpr size_t kForks = 10'000;
  SessionTable sessions({.max_sessions = kForks + 1}, metrics_);
  ASSERT_TRUE(sessions.Create("a", "").ok());
  {
    auto lease = sessions.LeaseForTurn("a");
    auto state = Session::CreateAtRest(engine_.states(), sessions.ledger());
    ASSERT_TRUE(state->Wake().ok());
    for (size_t i = 0; i < 1'000'000; ++i) state->Append(static_cast<uint32_t>(i % 97));
    lease->PutState(std::move(state));
  }
  const size_t before = mallinfo2().uordblks;
  for (size_t i = 0; i < kForks; ++i) {
    ASSERT_TRUE(sessions.Fork("a", absl::StrCat("f", i), "", std::nullopt).ok());
  }
  EXPECT_LT((mallinfo2().uordblks - before) / kForks, 64u << 10);
  EXPECT_EQ(engine_.states().tails().used(), 1u);
  EXPECT_EQ(sessions.Get("f9999")->tokens, 1'000'000u);
}

// It would take minutes if each look at all of them dropped one.
TEST_F(SessionTableTest, ForksThatShareEverythingGoInFewSteps) {
  constexpr size_t kForks = 5000;
  SessionTable sessions({.max_sessions = kForks + 1}, metrics_);
  ASSERT_TRUE(sessions.Create("a", "").ok());
  {
    auto lease = sessions.LeaseForTurn("a");
    auto state = Session::CreateAtRest(engine_.states(), sessions.ledger());
    for (int turn = 0; turn < 4; ++turn) {
      state->Keep(8, nullptr);
      ASSERT_TRUE(state->Wake().ok());
      for (int i = 0; i < 16; ++i) state->Append(7);
      state->Rest();
    }
    lease->PutState(std::move(state));
  }
  for (size_t i = 0; i < kForks; ++i) {
    ASSERT_TRUE(sessions.Fork("a", absl::StrCat("f", i), "", std::nullopt).ok());
  }
  size_t dropped = 0, steps = 0;
  for (size_t some; (some = sessions.DropKept(KeptStates::kOldestPosition)) > 0; ++steps) {
    dropped += some;
  }
  EXPECT_EQ(dropped, 4 * (kForks + 1));
  EXPECT_LE(steps, 5u);
  for (steps = 0; sessions.EvictLeastRecentlyUsed(); ++steps) continue;
  EXPECT_EQ(sessions.states(), 0u);
  EXPECT_LE(steps, 600u);
}

// Borders of idle sessions go many at once, those of the one used least recently first, and the
// same ones as if they went one by one.
TEST_F(SessionTableTest, ManyBordersGoInOneChange) {
  FakeEngine engine(300);
  SessionTable sessions({.max_sessions = 4}, metrics_);
  const auto grow = [&](const char* id) {
    ASSERT_TRUE(sessions.Create(id, "").ok());
    auto lease = sessions.LeaseForTurn(id);
    auto state = Session::CreateAtRest(engine.states(), sessions.ledger());
    state->Keep(8, nullptr);
    ASSERT_TRUE(state->Wake().ok());
    state->Append(std::vector<uint32_t>(1600, 7));
    ASSERT_TRUE(state->PlanSegment(0, 1600, {16, 100}).ok());
    state->CommitSegment();
    lease->PutState(std::move(state));
    EXPECT_EQ(sessions.Get(id)->kept_borders, 99u);
  };
  // Where what is left of them begins again, after 60 went in parts.
  const auto left = [&](size_t part) {
    grow("a");
    for (size_t i = 0; i < 60; i += part) {
      EXPECT_EQ(sessions.DropKept(KeptStates::kBorder, nullptr, part), part);
    }
    std::vector<uint64_t> positions;
    const auto lease = sessions.LeaseForReading("a");
    for (uint64_t tokens = 1; tokens <= 1600; tokens += 16) {
      positions.push_back((*lease->state()->ForkAt(tokens, true))->position());
    }
    return positions;
  };
  const auto at_once = left(60);
  ASSERT_TRUE(sessions.Delete("a").ok());
  EXPECT_EQ(left(1), at_once);
  grow("b");
  EXPECT_EQ(sessions.DropKept(KeptStates::kBorder, nullptr, 40), 40u);
  EXPECT_EQ(sessions.Get("a")->kept_borders, 0u);
  EXPECT_EQ(sessions.Get("b")->kept_borders, 98u);
}

// What idle_slots keeps up is what a look at all of them finds.
TEST_F(SessionTableTest, IdleSlotsAreCountedAsSessionsComeAndGo) {
  const auto bases = [&] { return sessions_.idle_slots().bases; };
  for (const char* const id : {"a", "b"}) {
    ASSERT_TRUE(sessions_.Create(id, "").ok());
    Turn(id, 20);
  }
  EXPECT_EQ(bases(), 2u);
  EXPECT_EQ(sessions_.idle_slots().tails, 2u);
  ASSERT_TRUE(sessions_.Fork("a", "c", "", std::nullopt).ok());
  EXPECT_EQ(bases(), 2u) << "a fork shares";
  {
    const auto busy = sessions_.LeaseForReading("a");
    EXPECT_EQ(bases(), 1u) << "what one that is not idle shares is not free";
    EXPECT_EQ(sessions_.idle_slots().tails, 1u);
  }
  EXPECT_EQ(bases(), 2u);
  ASSERT_TRUE(sessions_.Delete("a").ok());
  EXPECT_EQ(bases(), 2u) << "until Reap has destroyed it";
  sessions_.Reap();
  EXPECT_EQ(bases(), 2u) << "the fork still has it";
  EXPECT_EQ(sessions_.idle_slots().tails, 1u);
  ASSERT_TRUE(sessions_.Rewind("b", 20).ok());
  EXPECT_EQ(bases(), 2u);
  while (sessions_.EvictLeastRecentlyUsed()) continue;
  EXPECT_EQ(bases(), 0u);
  EXPECT_EQ(sessions_.idle_slots().tails, 0u);
}

TEST_F(SessionTableTest, IdleSessionsExpire) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  ASSERT_TRUE(sessions_.Create("b", "").ok());
  Turn("a");
  now_ += seconds(30);
  auto busy = sessions_.LeaseForTurn("b");
  EXPECT_EQ(sessions_.NextExpiry(), now_ + seconds(30));
  now_ += seconds(29);
  sessions_.Reap();
  EXPECT_EQ(sessions_.List("", SIZE_MAX).size(), 2u);
  now_ += seconds(1);
  sessions_.Reap();
  EXPECT_THAT(std::string(sessions_.Get("a").status().message()), HasSubstr("--session-ttl"));
  EXPECT_EQ(engine_.states().tails().used(), 0u);
  EXPECT_EQ(sessions_.NextExpiry(), SessionTable::TimePoint::max());
  busy->Release();
  EXPECT_EQ(sessions_.NextExpiry(), now_ + seconds(60));
}

// The engine thread sleeps until NextExpiry: it must hear of the first session that will expire.
TEST_F(SessionTableTest, TellsWhenThereIsSomethingToExpireAgain) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  ASSERT_TRUE(sessions_.Create("b", "").ok());
  EXPECT_EQ(told_, 1) << "b expires later than a";
  ASSERT_TRUE(sessions_.Delete("b").ok());
  auto lease = sessions_.LeaseForReading("a");
  EXPECT_EQ(sessions_.NextExpiry(), SessionTable::TimePoint::max());
  lease->Release();
  EXPECT_EQ(told_, 2);
  EXPECT_EQ(sessions_.NextExpiry(), now_ + seconds(60));
}

TEST_F(SessionTableTest, ADeletedStateIsDestroyedBeforeAnybodyLosesASession) {
  for (const char* id : {"a", "b"}) {
    ASSERT_TRUE(sessions_.Create(id, "").ok());
    Turn(id);
  }
  ASSERT_TRUE(sessions_.Delete("b").ok());
  EXPECT_EQ(sessions_.states(), 2u) << "it holds its slots until it is destroyed";
  EXPECT_TRUE(sessions_.EvictLeastRecentlyUsed());
  EXPECT_TRUE(sessions_.Get("a").ok());
  EXPECT_EQ(engine_.states().tails().used(), 1u);
}

TEST_F(SessionTableTest, ALostStateTakesItsSessionAlong) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  Turn("a");
  auto lease = sessions_.LeaseForTurn("a");
  std::unique_ptr<Session> state = lease->TakeState();
  state.reset();
  lease->Drop();
  EXPECT_FALSE(lease->held());
  EXPECT_THAT(std::string(sessions_.Get("a").status().message()), HasSubstr("failed step"));
  EXPECT_EQ(sessions_.List("", SIZE_MAX).size(), 0u);
  EXPECT_EQ(metrics_.sessions.value(), 0);
  EXPECT_TRUE(sessions_.Create("a", "").ok()) << "the id is free again";
}

// A fork or a rewind of a session that is busy, or gone.
TEST_F(SessionTableTest, WhatIsBusyOrGoneIsNeitherForkedNorRewound) {
  const auto forked = [&] { return sessions_.Fork("a", "", "", std::nullopt).status(); };
  const auto rewound = [&] { return sessions_.Rewind("a", 0).status(); };
  const auto expect_gone = [&](const char* why) {
    for (const absl::Status& gone : {forked(), rewound()}) {
      EXPECT_TRUE(absl::IsNotFound(gone)) << gone;
      EXPECT_THAT(std::string(gone.message()), HasSubstr(why));
    }
  };
  expect_gone("never created");
  const auto begin = [&] {
    ASSERT_TRUE(sessions_.Create("a", "").ok());
    Turn("a");
  };
  begin();
  {
    const auto reads = sessions_.LeaseForReading("a");
    EXPECT_TRUE(forked().ok()) << "what is read does not change";
    EXPECT_TRUE(absl::IsAborted(rewound()));
  }
  auto turn = sessions_.LeaseForTurn("a");
  EXPECT_TRUE(absl::IsAborted(forked()));
  EXPECT_TRUE(absl::IsAborted(rewound()));
  turn->Drop();
  expect_gone("lost in a failed step");
  begin();
  ASSERT_TRUE(sessions_.Delete("a").ok());
  expect_gone("deleted");
  begin();
  while (sessions_.EvictLeastRecentlyUsed()) continue;
  expect_gone("room was needed");
  begin();
  now_ += seconds(61);
  sessions_.Reap();
  expect_gone("idle for longer");
}

TEST_F(SessionTableTest, ALeaseThatEndsWithoutTheStateItTookDropsTheSession) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  Turn("a", 3);
  {
    auto lease = sessions_.LeaseForTurn("a");
    ASSERT_TRUE(lease.ok());
    ASSERT_NE(lease->TakeState(), nullptr);
    EXPECT_EQ(sessions_.tokens(), 0u);
  }
  const absl::Status gone = sessions_.Get("a").status();
  EXPECT_TRUE(absl::IsNotFound(gone)) << "not an empty session that has forgotten its tokens";
  EXPECT_EQ(Ended(SessionEnd::kFailed), 1u);
  EXPECT_EQ(metrics_.sessions.value(), 0);
  EXPECT_EQ(sessions_.leases(), 0u);
  EXPECT_EQ(sessions_.tokens(), 0u);
  EXPECT_EQ(sessions_.idle_tokens(), 0u);
}

// A fork that never ran has no slot to give.
TEST_F(SessionTableTest, ForksWithoutSlotsAreNotEvictedForSlots) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  Turn("a", 20);
  for (const char* fork : {"f1", "f2"}) {
    ASSERT_TRUE(sessions_.Fork("a", fork, "", std::nullopt).ok());
    EXPECT_EQ(sessions_.Get(fork)->tokens, 20u);
  }
  Turn("a");  // the forks were used before it
  EXPECT_EQ(engine_.states().tails().used(), 1u);
  ASSERT_TRUE(sessions_.EvictLeastRecentlyUsed());
  EXPECT_FALSE(sessions_.Get("a").ok());
  EXPECT_EQ(engine_.states().tails().used(), 0u);
  ASSERT_TRUE(sessions_.EvictLeastRecentlyUsed());
  EXPECT_FALSE(sessions_.Get("f1").ok()) << "none holds a slot alone: the one used least recently";
  EXPECT_EQ(engine_.states().bases().used(), 1u);
  ASSERT_TRUE(sessions_.EvictLeastRecentlyUsed());
  EXPECT_EQ(engine_.states().bases().used(), 0u);
  EXPECT_FALSE(sessions_.EvictLeastRecentlyUsed());
}

}  // namespace
}  // namespace rivulet
