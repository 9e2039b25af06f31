// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/session/session.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "server/engine/fake_engine.h"

namespace rivulet {
namespace {

std::unique_ptr<Session> MakeSession(Engine& engine) {
  auto session = Session::Create(engine.states());
  EXPECT_TRUE(session.ok()) << session.status();
  return *std::move(session);
}

// One step of `count` tokens of one session; returns the segment that ran.
Segment Advance(FakeEngine& engine, Session& session, size_t count, BorderRule borders = {}) {
  StepPlan plan;
  session.tokens().CopyTo(session.position(), count, plan.tokens);
  const auto segment = session.PlanSegment(0, count, borders);
  EXPECT_TRUE(segment.ok()) << segment.status();
  plan.rows.emplace_back().segment = *segment;
  EXPECT_TRUE(engine.Step(plan).rows[0].status.ok());
  session.CommitSegment();
  return *segment;
}

// The slots of a session, seen through a plan that is then cancelled.
uint64_t StateHash(FakeEngine& engine, Session& session) {
  session.Append(0);
  const Segment segment = *session.PlanSegment(0, 1);
  session.CancelSegment();
  return engine.StateHash(session.position(), segment.base_in, segment.tail,
                          session.position() % engine.capacity().fold_interval);
}

TEST(SessionTest, HoldsOneBaseAndOneTailWhileItLives) {
  FakeEngine engine(4);
  auto session = MakeSession(engine);
  EXPECT_EQ(engine.states().bases().used(), 1u);
  EXPECT_EQ(engine.states().tails().used(), 1u);
  session.reset();
  EXPECT_EQ(engine.states().bases().used(), 0u);
  EXPECT_EQ(engine.states().tails().used(), 0u);
}

TEST(SessionTest, FoldsInPlaceWhenAlone) {
  FakeEngine engine(4);
  auto session = MakeSession(engine);
  session->Append(std::vector<uint32_t>(40, 7));
  const Segment segment = Advance(engine, *session, 40);
  EXPECT_EQ(segment.base_in, segment.base_out);
  EXPECT_EQ(session->position(), 40u);
  EXPECT_EQ(session->pending(), 0u);
  EXPECT_EQ(engine.states().bases().used(), 1u);
}

TEST(SessionTest, CountsTheTokensThatForksAndEarlierPositionsHave) {
  FakeEngine engine(4);
  auto session = MakeSession(engine);
  session->Append(std::vector<uint32_t>(20, 7));
  Advance(engine, *session, 20);
  auto fork = *session->Fork();
  session->Append(7);
  fork->Append(5);
  EXPECT_EQ(session->token_counts().count(7), 21u);
  EXPECT_EQ(fork->token_counts().count(7), 20u);
  EXPECT_EQ(fork->token_counts().count(5), 1u);
  session->Rest();
  session->Keep(1, nullptr);
  session->Append(std::vector<uint32_t>(3, 7));
  ASSERT_TRUE(session->Wake().ok());
  session->Append(7);
  session->Rest();
  const auto earlier = *session->ForkAt(21, false);
  EXPECT_EQ(earlier->token_counts().count(7), 21u);
  EXPECT_EQ(session->token_counts().count(7), 25u);
}

TEST(SessionTest, FoldsElsewhereWhenSharedAndOnlyWhenItFolds) {
  FakeEngine engine(4);
  auto session = MakeSession(engine);
  session->Append(std::vector<uint32_t>(16, 7));
  auto fork = *session->Fork();
  EXPECT_EQ(engine.states().bases().used(), 1u);
  Segment segment = Advance(engine, *fork, 15);
  EXPECT_EQ(segment.base_in, segment.base_out);
  segment = Advance(engine, *fork, 1);
  EXPECT_NE(segment.base_in, segment.base_out);
  EXPECT_EQ(engine.states().bases().used(), 2u);
  segment = Advance(engine, *session, 16);
  EXPECT_EQ(segment.base_in, segment.base_out) << "alone again";
}

TEST(SessionTest, CancelGivesTheNewBaseBack) {
  FakeEngine engine(4);
  auto session = MakeSession(engine);
  auto fork = *session->Fork();
  fork->Append(std::vector<uint32_t>(16, 7));
  ASSERT_TRUE(fork->PlanSegment(0, 16).ok());
  EXPECT_EQ(engine.states().bases().used(), 2u);
  fork->CancelSegment();
  EXPECT_EQ(engine.states().bases().used(), 1u);
  EXPECT_EQ(fork->position(), 0u);
  EXPECT_EQ(fork->pending(), 16u);
}

TEST(SessionTest, DestructionWhilePlannedGivesEverythingBack) {
  FakeEngine engine(4);
  auto session = MakeSession(engine);
  auto fork = *session->Fork();
  fork->Append(std::vector<uint32_t>(16, 7));
  ASSERT_TRUE(fork->PlanSegment(0, 16).ok());
  fork.reset();
  EXPECT_EQ(engine.states().bases().used(), 1u);
  EXPECT_EQ(engine.states().tails().used(), 1u);
}

TEST(SessionTest, FullEngineRefusesAndKeepsNothing) {
  FakeEngine engine(2);
  auto first = MakeSession(engine), second = MakeSession(engine);
  const auto third = Session::Create(engine.states());
  EXPECT_EQ(third.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(engine.states().bases().used(), 2u);
  EXPECT_EQ(first->Fork().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(engine.states().bases().Shared(0));
}

// With a base for each session and one spare, sessions that share one can all go on: one
// that finds no slot waits a step, and the last one folds in place.
TEST(SessionTest, SessionsThatShareABaseNeverBlockEachOtherForever) {
  FakeEngine engine(7);
  std::vector<std::unique_ptr<Session>> sessions;
  sessions.push_back(MakeSession(engine));
  sessions[0]->Append(std::vector<uint32_t>(16, 3));
  while (sessions.size() < engine.capacity().tail_slots) {
    sessions.push_back(*sessions[0]->Fork());
  }
  for (int round = 0; round < 2; ++round) {
    for (auto& session : sessions) {
      if (session->pending() && session->PlanSegment(0, 16).ok()) session->CommitSegment();
    }
  }
  for (auto& session : sessions) EXPECT_EQ(session->pending(), 0u);
}

// Whether a session of `tokens` tokens, all processed, may run ahead with the next one. If it may,
// a cancelled segment must leave everything as it was.
bool CanRunAhead(FakeEngine& engine, size_t tokens) {
  auto session = MakeSession(engine);
  session->Append(std::vector<uint32_t>(tokens, 7));
  Advance(engine, *session, tokens);
  const uint32_t bases = engine.states().bases().used();
  const absl::StatusOr<Segment> ahead = session->PlanPromised(0);
  EXPECT_EQ(session->segment_planned(), ahead.ok());
  EXPECT_TRUE(ahead.ok() || absl::IsResourceExhausted(ahead.status())) << ahead.status();
  session->CancelSegment();
  EXPECT_EQ(engine.states().bases().used(), bases);
  EXPECT_EQ(session->position(), tokens);
  return ahead.ok();
}

TEST(SessionTest, RunsAheadIntoAFoldUnlessItRewritesPages) {
  FakeEngine carries(4, {{PageRule::kFenwick, 5, 0}, {PageRule::kAppended, 0, 0}});
  FakeEngine rewrites(4, {{PageRule::kFenwick, 5, 0}, {PageRule::kRewrittenFenwick, 5, 0}});
  for (size_t tokens = 17; tokens <= 80; ++tokens) {
    const bool folds = (tokens + 1) % 16 == 0;
    EXPECT_TRUE(CanRunAhead(carries, tokens)) << tokens;
    EXPECT_EQ(CanRunAhead(rewrites, tokens), !folds) << tokens;
  }
}

TEST(SessionTest, NeverRunsAheadWithARunningTail) {
  for (const bool running : {false, true}) {
    StateLayout layer;
    layer.Add(StatePart::kTail, "state", DType::kFloat32, {4});
    if (running) layer.SetRunningTail();
    const StateLayout* layers[] = {&layer};
    const auto pool = StatePool::Make(AddUpLayouts(layers), 4096, 64);
    ASSERT_TRUE(pool.ok()) << pool.status();
    const auto session = Session::Create(**pool);
    ASSERT_TRUE(session.ok()) << session.status();
    (*session)->Append(7);
    ASSERT_TRUE((*session)->PlanSegment(0, 1).ok());
    (*session)->CommitSegment();
    EXPECT_EQ((*session)->PlanPromised(0).ok(), !running);
  }
}

// A session of one turn that keeps its borders as it grows token by token.
std::unique_ptr<Session> GrowWithBorders(FakeEngine& engine, uint64_t tokens, size_t most) {
  auto session = Session::CreateAtRest(engine.states(), std::make_shared<TokenLedger>());
  session->Keep(4, nullptr);
  EXPECT_TRUE(session->Wake().ok());
  for (uint64_t i = 0; i < tokens; ++i) {
    session->Append(7);
    if (session->has_new_border()) session->KeepBorder(most);
    Advance(engine, *session, 1);
  }
  return session;
}

uint64_t ComputedAgain(const Session& session, uint64_t position) {
  return position - 1 - (*session.ForkAt(position, true))->position();
}

TEST(SessionTest, WithAllBordersARewindComputesFifteenTokens) {
  FakeEngine engine(100);
  auto session = GrowWithBorders(engine, 500, 1000);
  session->Rest();
  EXPECT_EQ(session->borders(), 30u) << "the last one is its state";
  EXPECT_EQ(engine.states().bases().used(), 31u);
  EXPECT_EQ(session->kept_bytes(), 30 * engine.capacity().base_bytes);
  for (uint64_t position = 1; position <= 500; ++position) {
    ASSERT_LE(ComputedAgain(*session, position), 15u) << position;
  }
  EXPECT_EQ((*session->ForkAt(250, true))->borders(), 15u);
  EXPECT_EQ((*session->ForkAt(250, false))->borders(), 0u);
  EXPECT_EQ((*session->ForkAt(250, false))->position(), 240u);
  for (const size_t some : {1, 4, 24}) {
    EXPECT_EQ(session->DropKept(KeptStates::kBorder, some), some);
  }
  EXPECT_EQ(session->DropKept(KeptStates::kBorder, 3), 1u);
  EXPECT_EQ(session->DropKept(KeptStates::kBorder, 1), 0u);
  EXPECT_EQ(engine.states().bases().used(), 1u);
  EXPECT_EQ((*session->ForkAt(250, true))->position(), 0u) << "where the turn began";
}

// Of a segment that passes several borders, all are kept or those at multiples of a number.
TEST(SessionTest, ASegmentKeepsTheBordersThatItPasses) {
  FakeEngine engine(100);
  auto session = GrowWithBorders(engine, 21, 1000);
  session->Append(std::vector<uint32_t>(300, 7));
  EXPECT_EQ(session->BordersWithin(11, 16), 0u) << "the last one is its state";
  EXPECT_EQ(session->BordersWithin(27, 16), 1u);
  EXPECT_EQ(session->BordersWithin(139, 16), 8u);
  EXPECT_EQ(session->BordersWithin(139, 64), 2u);
  const uint32_t bases = engine.states().bases().used();
  ASSERT_TRUE(session->PlanSegment(0, 139, {16, 1000}).ok());
  EXPECT_EQ(engine.states().bases().used(), bases + 8 + 1) << "and one in place of the shared one";
  session->CancelSegment();
  EXPECT_EQ(engine.states().bases().used(), bases);
  Advance(engine, *session, 139, {16, 1000});
  Advance(engine, *session, 160, {64, 1000});
  session->Rest();
  for (uint64_t position = 1; position <= 160; ++position) {
    ASSERT_LE(ComputedAgain(*session, position), 15u) << position;
  }
  for (uint64_t position = 160; position <= 320; ++position) {
    ASSERT_LE(ComputedAgain(*session, position), 63u) << position;
  }
  EXPECT_EQ(session->borders(), 11u) << "16 to 144, 192 and 256";
}

TEST(SessionTest, FewBordersLeaveGapsThatGrowWithTheDistance) {
  FakeEngine engine(100);
  auto session = GrowWithBorders(engine, 4096, 24);
  EXPECT_LE(engine.states().bases().used(), 25u);
  session->Rest();
  for (uint64_t position = 1; position <= 4096; ++position) {
    const uint64_t distance = 4096 - position;
    const uint64_t most = distance < 96 ? 15 : std::max<uint64_t>(31, (distance + 2) / 3);
    ASSERT_LE(ComputedAgain(*session, position), most) << position;
  }
}

TEST(SessionTest, BordersGoWithTheOldestPosition) {
  FakeEngine engine(100);
  auto session = GrowWithBorders(engine, 100, 1000);
  session->Rest();
  session->Keep(1, nullptr);
  EXPECT_EQ(session->borders(), 0u) << "no rewind reaches them";
  EXPECT_EQ(engine.states().bases().used(), 1u);
}

// Random lives of many sessions; after each operation every session's slots, and every state that
// it keeps, must hold exactly its own processed tokens.
class Lives {
 public:
  // `rewrites`: some pages are rewritten by folds; then no borders are kept within segments.
  Lives(uint32_t seed, size_t fold_interval, bool rewrites)
      : random_(seed),
        rewrites_(rewrites),
        engine_(6,
                {{PageRule::kFenwick, 5, 0},
                 {rewrites ? PageRule::kRewrittenFenwick : PageRule::kFenwick, 4, 0},
                 {PageRule::kAppended, 0, 0},
                 {PageRule::kAppended, 0, 50}},
                100000, fold_interval) {}

  void Live() {
    const size_t pick = sessions_.empty() ? 0 : random_() % sessions_.size();
    const int what = random_() % 16;
    if (sessions_.empty() || what == 0) return AddNew();
    if (what == 1) return Add(sessions_[pick]->Fork());
    if (what == 2) return void(sessions_.erase(sessions_.begin() + pick));
    if (what == 3) return AddPast(*sessions_[pick]);
    if (what == 4) return void(sessions_[pick]->DropKept(KeptStates::kBorder, 1));
    Step();
  }

  void CheckAll() {
    size_t points = 0;
    for (auto& session : sessions_) {
      const std::vector<uint32_t> tokens = session->tokens().Copy();
      const uint64_t expected = FakeEngine::Hash({tokens.data(), session->position()});
      MakeRoomFor(*session);
      ASSERT_EQ(StateHash(engine_, *session), expected) << "at " << session->position();
      session->ForEachPoint([&](const std::shared_ptr<StatePoint>& point) {
        ++points;
        EXPECT_EQ(engine_.StateHash(point->position, point->base.slot(), 0, 0),
                  FakeEngine::Hash({tokens.data(), point->position}))
            << "the border at " << point->position << " of " << session->position();
      });
    }
    ASSERT_EQ(engine_.states().tails().used(), sessions_.size());
    ASSERT_LE(engine_.states().bases().used(), sessions_.size() + points);
    if (!sessions_.empty()) return;
    for (size_t kind = 0; kind < 4; ++kind) ASSERT_EQ(engine_.states().pages(kind).used(), 0u);
  }

 private:
  void Add(absl::StatusOr<std::unique_ptr<Session>> session) {
    if (session.ok()) sessions_.push_back(*std::move(session));
  }
  // For one token more. The scheduler never lets borders take this.
  void MakeRoomFor(Session& session) {
    session.Append(0);
    const auto drop = [](auto& other) { return other->DropKept(KeptStates::kBorder, 1) > 0; };
    while (!session.PlanSegment(0, 1).ok()) {
      ASSERT_TRUE(std::any_of(sessions_.begin(), sessions_.end(), drop));
    }
    session.CancelSegment();
  }
  void AddNew() {
    auto session = Session::CreateAtRest(engine_.states(), std::make_shared<TokenLedger>());
    session->Keep(4, nullptr);
    AddAwake(std::move(session));
  }
  void AddAwake(std::unique_ptr<Session> session) {
    if (session->Wake().ok()) sessions_.push_back(std::move(session));
  }
  // A fork of what it once was.
  void AddPast(Session& session) {
    if (session.kept().empty()) return;
    session.Rest();
    const uint64_t oldest = session.kept().front().tokens;
    const uint64_t position = oldest + random_() % (session.tokens().size() - oldest + 1);
    auto past = session.ForkAt(position, random_() % 2 == 0);
    ASSERT_TRUE(past.ok()) << past.status();
    ASSERT_TRUE(session.Wake().ok());
    AddAwake(*std::move(past));
  }

  // Some sessions take part in one step; some of those are cancelled instead of run.
  void Step() {
    StepPlan plan;
    std::vector<Session*> ran;
    for (auto& session : sessions_) {
      if (random_() % 2) continue;
      for (size_t i = random_() % 90; i > 0; --i) session->Append(random_() % 100);
      if (session->pending() == 0) continue;
      const size_t count = 1 + random_() % session->pending();
      const auto segment = session->PlanSegment(plan.tokens.size(), count, Borders(*session));
      if (!segment.ok()) continue;
      if (random_() % 8 == 0) {
        session->CancelSegment();
        continue;
      }
      session->tokens().CopyTo(session->position(), count, plan.tokens);
      plan.rows.emplace_back().segment = *segment;
      ran.push_back(session.get());
    }
    engine_.Step(plan);
    for (Session* session : ran) session->CommitSegment();
  }

  BorderRule Borders(const Session& session) {
    if (rewrites_ || session.kept().empty()) return {};
    return {random_() % 3 * engine_.capacity().fold_interval, random_() % 4};
  }

  std::mt19937 random_;
  const bool rewrites_;
  FakeEngine engine_;
  std::vector<std::unique_ptr<Session>> sessions_;
};

TEST(SessionTest, RandomLivesKeepEveryStateApart) {
  for (const size_t fold_interval : {16, 32}) {
    for (const bool rewrites : {false, true}) {
      Lives lives(TestSeed(), fold_interval, rewrites);
      for (int i = 0; i < 3000 && !testing::Test::HasFailure(); ++i) {
        lives.Live();
        lives.CheckAll();
      }
    }
  }
}

}  // namespace
}  // namespace rivulet
