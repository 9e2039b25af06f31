// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Forks and rewinds over real mixers: long random schedules of turns with one or more completions,
// forks, rewinds and deletions, in company and with little memory for states. Every completion has
// the bits of its whole context as one prompt in an engine of its own, where nothing is reused.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "nlohmann/json.hpp"
#include "server/engine/random_model.h"
#include "server/engine/test_models.h"
#include "server/log/log.h"
#include "server/scheduler/oracle_drafter.h"
#include "server/scheduler/stack_fixture.h"

namespace rivulet {
namespace {

constexpr uint32_t kVocab = 101;  // of the test models
constexpr uint32_t kKept = 3;

struct ReuseParam {
  TestModel model;
  size_t depth;
  bool drafts;
};

// A session as it must be.
struct Expected {
  std::vector<uint32_t> tokens;
  Client* client = nullptr;  // of a turn that runs
  Ask ask = {};
  uint64_t since = 0;    // all borders after this position are its own
  uint64_t back_to = 0;  // where it was rewound to, and has not run since
};

class ReuseTest : public testing::TestWithParam<ReuseParam> {
 protected:
  void SetUp() override {
    SetLogLevel("error");
    auto model = MakeRandomModel(nlohmann::json::parse(GetParam().model.config), 1, WithHead());
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
    alone_ = std::make_unique<Stack>(model_, 1, 1, random_());
    oracle_ = std::make_unique<OracleSource>(model_, kVocab, random_());
  }
  DraftOptions Drafts() { return GetParam().drafts ? oracle_->Options() : DraftOptions(); }
  void TearDown() override { SetLogLevel("info"); }

  uint64_t Below(uint64_t limit) { return random_() % limit; }
  std::vector<uint32_t> RandomTokens(size_t count) {
    std::vector<uint32_t> tokens(count);
    for (uint32_t& token : tokens) token = static_cast<uint32_t>(Below(kVocab));
    return tokens;
  }

  void Create() { sessions_[stack_->sessions().Create("", "")->id] = {}; }

  // Some id of those that are known.
  std::string AnyId() {
    auto one = sessions_.begin();
    std::advance(one, Below(sessions_.size()));
    return one->first;
  }

  void StartTurn(const std::string& id) {
    Expected& session = sessions_.at(id);
    session.ask = {};
    const bool goes_on = !session.tokens.empty() && Below(3) == 0;
    session.ask.prompt = RandomTokens(goes_on ? 0 : 1 + Below(40));
    session.ask.max_tokens = static_cast<uint32_t>(goes_on ? 1 + Below(23) : Below(24));
    session.ask.sampling.seed = random_();
    session.ask.sampling.repetition_penalty = 1.1f;
    session.ask.logprobs = 2;
    session.ask.stop.ignore_eos = true;
    if (Below(4) == 0)
      session.ask.completions = static_cast<uint32_t>(2 + Below(most_choices_ - 1));
    session.ask.keep_choices = session.ask.completions > 1 && Below(2) == 0;
    session.client = &stack_->Submit(session.ask, *stack_->sessions().LeaseForTurn(id));
  }

  // Each answer is that to the whole context as one prompt. The session goes on with the first.
  void CheckTurn(const std::string& id) {
    Expected& session = sessions_.at(id);
    ASSERT_EQ(session.client->end, absl::OkStatus());
    Ask whole = session.ask;
    whole.keep_choices = false;
    whole.prompt = session.tokens;
    whole.prompt.insert(whole.prompt.end(), session.ask.prompt.begin(), session.ask.prompt.end());
    const std::vector<Received> expected = alone_->Run(whole).received;
    CheckAgain(session);
    for (uint32_t i = 0; i < whole.completions; ++i) {
      const Received& got = session.client->received[i];
      ExpectSame(got, expected[i]);
      std::vector<uint32_t> tokens = whole.prompt;
      tokens.insert(tokens.end(), got.tokens.begin(), got.tokens.end());
      if (i == 0) session.tokens = std::move(tokens);
      if (i > 0) CheckChoice(id, got, whole, std::move(tokens));
    }
    session.client = nullptr;
  }

  // The tokens that a turn computed again.
  void CheckAgain(Expected& session) {
    const uint64_t back_to = std::exchange(session.back_to, 0);
    if (back_to <= session.since) return;
    const uint64_t cached = session.client->received[0].usage.cached_tokens;
    again_ = std::max(again_, back_to - 1 - cached);
  }

  void CheckChoice(const std::string& id, const Received& got, const Ask& whole,
                   std::vector<uint32_t> tokens) {
    const bool kept = sessions_.at(id).ask.keep_choices && whole.max_tokens > 0;
    ASSERT_EQ(!got.fork_id.empty(), kept);
    if (!kept) return;
    ++forks_;
    const auto fork = stack_->sessions().Get(got.fork_id);
    if (!fork.ok()) return void(++evicted_);
    EXPECT_EQ(fork->forked_from, id);
    EXPECT_EQ(fork->forked_at, whole.prompt.size());
    sessions_[got.fork_id] = {std::move(tokens), nullptr, {}, whole.prompt.size()};
  }

  void RunTurns() {
    for (uint64_t i = 1 + Below(3); i > 0; --i) {
      const std::string id = AnyId();
      if (sessions_.at(id).client == nullptr) StartTurn(id);
    }
    while (stack_->Step()) continue;
    std::vector<std::string> ran;
    for (auto& [id, session] : sessions_) {
      if (session.client != nullptr) ran.push_back(id);
    }
    for (const std::string& id : ran) {
      sessions_.at(id).client->Read();
      CheckTurn(id);
      if (HasFatalFailure()) return;
    }
    NoteEvictions();
  }

  // A position that the session can go back to, or, sometimes, one that it cannot.
  uint64_t AnyPosition(const std::string& id) {
    const SessionInfo info = *stack_->sessions().Get(id);
    const uint64_t choice = Below(5);
    if (choice == 4) return Below(info.tokens + 1) / 16 * 16;
    if (choice == 0) return info.tokens + Below(2);
    if (choice == 1 && !info.kept_positions.empty()) {
      return info.kept_positions[Below(info.kept_positions.size())];
    }
    return Below(info.tokens + 1);
  }

  // What is asked of a session's past.
  bool Reaches(const SessionInfo& info, uint64_t position) {
    const uint64_t oldest = info.kept_positions.empty() ? info.tokens : info.kept_positions.front();
    return position >= oldest && position <= info.tokens;
  }

  void Fork() {
    const std::string id = AnyId();
    const SessionInfo info = *stack_->sessions().Get(id);
    const uint64_t position = AnyPosition(id);
    const uint32_t bases = stack_->states().bases().used();
    const auto fork = stack_->sessions().Fork(id, "", "a fork", position);
    ASSERT_EQ(fork.ok(), Reaches(info, position)) << fork.status();
    ASSERT_EQ(stack_->states().bases().used(), bases) << "a fork takes no slot";
    if (!fork.ok()) {
      ASSERT_TRUE(absl::IsOutOfRange(fork.status())) << fork.status();
      return;
    }
    ++forks_;
    ASSERT_EQ(fork->tokens, position);
    const Expected& source = sessions_.at(id);
    Expected& made = sessions_[fork->id];
    made.tokens.assign(source.tokens.begin(), source.tokens.begin() + static_cast<long>(position));
    made.since = position;
  }

  void Rewind() {
    const std::string id = AnyId();
    const SessionInfo info = *stack_->sessions().Get(id);
    const uint64_t position = AnyPosition(id);
    const auto rewound = stack_->sessions().Rewind(id, position);
    ASSERT_EQ(rewound.ok(), Reaches(info, position)) << rewound.status();
    if (!rewound.ok()) return;
    ++rewinds_;
    ASSERT_EQ(rewound->tokens, position);
    ASSERT_LE(rewound->kept_positions.size(), kKept);
    sessions_.at(id).tokens.resize(position);
    sessions_.at(id).back_to = position;
  }

  // Forgets the sessions that were dropped for their slots.
  void NoteEvictions() {
    evicted_ += std::erase_if(sessions_, [&](const auto& entry) {
      return entry.second.client == nullptr && !stack_->sessions().Get(entry.first).ok();
    });
  }

  void Delete() {
    const std::string id = AnyId();
    ASSERT_TRUE(stack_->sessions().Delete(id).ok());
    sessions_.erase(id);
  }

  void CheckSessions() {
    for (const auto& [id, session] : sessions_) {
      ASSERT_EQ(stack_->sessions().Get(id)->tokens, session.tokens.size());
      if (session.tokens.empty()) continue;
      ASSERT_EQ(stack_->TokensOf(id), session.tokens);
    }
  }

  std::shared_ptr<const LoadedModel> model_;
  std::mt19937_64 random_{TestSeed()};
  std::unique_ptr<OracleSource> oracle_;
  std::unique_ptr<Stack> stack_, alone_;
  std::map<std::string, Expected> sessions_;
  int forks_ = 0, rewinds_ = 0;
  size_t evicted_ = 0;
  uint64_t again_ = 0;  // the most tokens that a turn after a rewind computed again
  uint32_t most_choices_ = 3;
};

TEST_P(ReuseTest, EveryTurnHasTheBitsOfItsWholeContext) {
  const bool automatic = alone_->states().capacity().fold_bases && Below(2) == 0;
  const Borders borders =
      automatic ? Borders{kAutomaticBorders, kAutomaticBorders} : Borders{1000, 16};
  stack_ = std::make_unique<Stack>(model_, 2, GetParam().depth, random_(), kKept, uint64_t{1} << 30,
                                   Drafts(), 0, borders);
  oracle_->Bind(stack_->engine());
  Create();
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    if (sessions_.size() < 2) Create();
    const uint64_t what = Below(8);
    if (what < 4) RunTurns();
    if (what == 4 || what == 5) Fork();
    if (what == 6) Rewind();
    if (what == 7 && sessions_.size() > 5) Delete();
    if (HasFatalFailure()) return;
    CheckSessions();
  }
  // Where states are large, some borders find no slot.
  if (stack_->metrics().borders_dropped.value() == 0) {
    EXPECT_LE(again_, 15u) << "all borders are kept";
  }
  EXPECT_GT(forks_, 3);
  EXPECT_GT(rewinds_, 0);
  EXPECT_EQ(stack_->metrics().session_forks.value(), static_cast<uint64_t>(forks_));
  while (!sessions_.empty()) Delete();
  stack_->Reap();
  EXPECT_EQ(stack_->states().bases().used(), 0u);
  EXPECT_EQ(stack_->states().tails().used(), 0u);
  EXPECT_EQ(stack_->sessions().tokens(), 0u);
}

// Kept positions go before sessions, and sessions before requests fail.
TEST_P(ReuseTest, WithMemoryForFewStates) {
  const uint64_t all = uint64_t{1} << 30;
  const uint64_t session = all / alone_->states().capacity().tail_slots;
  stack_ = std::make_unique<Stack>(model_, 2, GetParam().depth, random_(), kKept,
                                   4 * session + session / 2, Drafts(), 0, AnyBorders(random_));
  most_choices_ = 2;
  oracle_->Bind(stack_->engine());
  const auto evicted = [&] {
    return stack_->metrics().session_ends[static_cast<size_t>(SessionEnd::kEvicted)].value();
  };
  Create();
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    while (sessions_.size() < 3) Create();
    const uint64_t what = Below(8);
    if (what < 6) RunTurns();
    if (what == 6) Fork();
    if (what == 7) Rewind();
    if (HasFatalFailure()) return;
    CheckSessions();
    ASSERT_EQ(evicted(), evicted_);
  }
  EXPECT_GT(stack_->metrics().kept_positions_dropped.value(), 0u);
}

std::vector<ReuseParam> AllParams() {
  std::vector<ReuseParam> params;
  for (const size_t depth : {1, 2}) {
    for (const TestModel& model : AllTestModels()) {
      for (const bool drafts : {false, true}) params.push_back({model, depth, drafts});
    }
  }
  return params;
}

INSTANTIATE_TEST_SUITE_P(Models, ReuseTest, testing::ValuesIn(AllParams()), [](const auto& info) {
  return info.param.model.name + (info.param.depth == 2 ? "Ahead" : "") +
         (info.param.drafts ? "Drafts" : "");
});

}  // namespace
}  // namespace rivulet
