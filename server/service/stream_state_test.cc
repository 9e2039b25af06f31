// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/service/stream_state.h"

#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"

namespace rivulet {
namespace {

using Call = CallState::Phase;
using Chat = ChatState::Phase;

const std::map<std::string, Call> kCallPhases = {
    {"kOpen", Call::kOpen},         {"kStopping", Call::kStopping},
    {"kSaidLast", Call::kSaidLast}, {"kStopped", Call::kStopped},
    {"kBroken", Call::kBroken},     {"kSayingCancelled", Call::kSayingCancelled},
    {"kEnded", Call::kEnded},       {"kEndedByStop", Call::kEndedByStop}};
const std::map<std::string, Chat> kChatPhases = {
    {"kIdle", Chat::kIdle},         {"kTurn", Chat::kTurn},
    {"kEnding", Chat::kEnding},     {"kTurnAndNext", Chat::kTurnAndNext},
    {"kFinished", Chat::kFinished}, {"kEndingTurn", Chat::kEndingTurn}};

template <typename State>
using Events = std::map<std::string, std::function<void(State&)>>;

const Events<CallState> kCallEvents = {
    {"kStop", [](CallState& state) { state.Stop(); }},
    {"kSayLast", [](CallState& state) { state.BeginWrite(true); }},
    {"kWritten", [](CallState& state) { state.EndWrite(true); }},
    {"kBreak", [](CallState& state) { state.EndWrite(false); }},
    {"kEndCancelled", [](CallState& state) { state.End(true); }},
    {"kEnd", [](CallState& state) { state.End(false); }},
};
const Events<ChatState> kChatEvents = {
    {"kBegin", [](ChatState& state) { state.Begin(); }},
    {"kQueue", [](ChatState& state) { state.Queue(); }},
    {"kTurnEnd", [](ChatState& state) { state.EndTurn(); }},
    {"kEnd", [](ChatState& state) { state.End(); }},
    {"Finish", [](ChatState& state) { state.Finish(); }},
};

// How to come to each state from a new one.
const std::map<std::string, std::vector<std::string>> kPaths = {
    {"kOpen", {}},
    {"kStopping", {"kStop"}},
    {"kSaidLast", {"kSayLast"}},
    {"kStopped", {"kSayLast", "kStop"}},
    {"kBroken", {"kBreak"}},
    {"kSayingCancelled", {"kStop", "kEndCancelled"}},
    {"kEnded", {"kEnd"}},
    {"kEndedByStop", {"kStop", "kSayLast", "kEndCancelled"}},
    {"kIdle", {}},
    {"kTurn", {"kBegin"}},
    {"kTurnAndNext", {"kBegin", "kQueue"}},
    {"kEnding", {"kEnd"}},
    {"kEndingTurn", {"kBegin", "kEnd"}},
    {"kFinished", {"kEnd", "Finish"}},
};

// "=" stays in the state, "-" is a bug of ours, which ends the process.
constexpr char kCallTable[] = R"(
                  kStop      kSayLast   kWritten      kBreak   kEndCancelled     kEnd
kOpen             kStopping  kSaidLast  =             kBroken  kEnded            kEnded
kStopping         =          kStopped   =             kBroken  kSayingCancelled  kEnded
kSaidLast         kStopped   =          =             kBroken  kEnded            kEnded
kStopped          =          =          =             kBroken  kEndedByStop      kEnded
kBroken           =          =          =             =        kEnded            kEnded
kSayingCancelled  =          -          kEndedByStop  kEnded   -                 -
kEnded            =          -          -             -        -                 -
kEndedByStop      =          -          -             -        -                 -
)";
constexpr char kChatTable[] = R"(
              kBegin  kQueue        kTurnEnd  kEnd
kIdle         kTurn   -             -         kEnding
kTurn         -       kTurnAndNext  kIdle     kEndingTurn
kTurnAndNext  -       -             kIdle     kEndingTurn
kEnding       =       -             -         =
kEndingTurn   -       =             kEnding   =
kFinished     -       -             -         =
)";

std::vector<std::string> Words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

template <typename State>
State StateIn(const std::string& phase, const Events<State>& events) {
  State state;
  for (const std::string& event : kPaths.at(phase)) events.at(event)(state);
  return state;
}

// Each cell of the table, done to a state in that row's phase.
template <typename State, typename Phases>
void CheckTable(const char* table, const Events<State>& events, const Phases& phases) {
  std::istringstream lines(table);
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  const std::vector<std::string> columns = Words(line);
  size_t rows = 0;
  for (; std::getline(lines, line); ++rows) {
    const std::vector<std::string> row = Words(line);
    ASSERT_EQ(row.size(), columns.size() + 1) << line;
    for (size_t i = 0; i < columns.size(); ++i) {
      SCOPED_TRACE(row[0] + " " + columns[i]);
      State state = StateIn(row[0], events);
      ASSERT_EQ(state.phase(), phases.at(row[0]));
      const std::string& next = row[i + 1];
      if (next == "-") {
        EXPECT_DEATH(events.at(columns[i])(state), "cannot happen");
        continue;
      }
      events.at(columns[i])(state);
      EXPECT_EQ(state.phase(), phases.at(next == "=" ? row[0] : next));
    }
  }
  EXPECT_EQ(rows, phases.size());
}

TEST(StreamStateTest, EveryEventInEveryStateOfACall) {
  CheckTable(kCallTable, kCallEvents, kCallPhases);
}

TEST(StreamStateTest, EveryEventInEveryStateOfAChat) {
  CheckTable(kChatTable, kChatEvents, kChatPhases);
}

// The same, said with a flag for each fact.
struct CallFlags {
  bool writing = false, cutting = false, broken = false, stopped = false, said_last = false;
  bool saying_cancelled = false, ended = false;
};

class RandomCall {
 public:
  explicit RandomCall(uint64_t seed) : random_(seed) {}

  void Run() {
    for (int i = 0; i < 60; ++i) {
      Step();
      ASSERT_EQ(state_.may_take(), MayTake());
      ASSERT_EQ(state_.ended(), flags_.ended);
      if (!flags_.broken && !flags_.ended) {
        ASSERT_EQ(state_.said_last(), flags_.said_last);
      }
    }
  }

 private:
  int Draw(int cases) { return static_cast<int>(random_() % static_cast<unsigned>(cases)); }
  bool MayTake() const {
    return !flags_.writing && !flags_.cutting && !flags_.ended && !flags_.saying_cancelled;
  }

  void Step() {
    switch (Draw(5)) {
      case 0:
        state_.Stop();
        flags_.stopped = true;
        return;
      case 1:
        return Cut();
      case 2:
        if (flags_.writing) EndWrite(Draw(4) != 0);
        return;
      default:
        if (MayTake()) Take();
    }
  }

  void Cut() {
    if (flags_.cutting) {
      state_.EndCut();
      flags_.cutting = false;
      return;
    }
    if (Draw(4) != 0) return;
    flags_.cutting = !flags_.ended && !flags_.saying_cancelled;
    flags_.broken |= flags_.cutting;
    ASSERT_EQ(state_.BeginCut(), flags_.cutting);
  }

  void Take() {
    if (Draw(6) == 0) return End(Draw(2) == 0);
    const bool last = Draw(6) == 0;
    ASSERT_EQ(state_.BeginWrite(last), !flags_.broken);
    flags_.writing = !flags_.broken;
    flags_.said_last |= last && flags_.writing;
  }

  void End(bool cancelled) {
    state_.End(cancelled);
    if (cancelled && flags_.stopped && !flags_.broken && !flags_.said_last) {
      ASSERT_EQ(state_.phase(), Call::kSayingCancelled);
      flags_.saying_cancelled = flags_.writing = flags_.said_last = true;
      return;
    }
    flags_.ended = true;
    const bool by_stop = cancelled && flags_.stopped && !flags_.broken;
    ASSERT_EQ(state_.phase(), by_stop ? Call::kEndedByStop : Call::kEnded);
  }

  void EndWrite(bool ok) {
    state_.EndWrite(ok);
    flags_.writing = false;
    flags_.broken |= !ok;
    if (!flags_.saying_cancelled) return;
    flags_.ended = true;
    ASSERT_EQ(state_.phase(), ok ? Call::kEndedByStop : Call::kEnded);
  }

  std::mt19937_64 random_;
  CallState state_;
  CallFlags flags_;
};

TEST(StreamStateTest, CallsInRandomOrdersMatchTheFlags) {
  const uint64_t seed = TestSeed();
  for (uint64_t i = 0; i < 20000 && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(i);
    RandomCall(seed + i).Run();
  }
}

class RandomChat {
 public:
  explicit RandomChat(uint64_t seed) : random_(seed) {}

  void Run() {
    for (int i = 0; i < 40; ++i) {
      Step();
      const bool finishes = ending_ && !turn_ && tasks_ == 0 && !finished_;
      ASSERT_EQ(state_.Finish(), finishes);
      finished_ |= finishes;
      ASSERT_EQ(state_.phase() == Chat::kFinished, finished_);
    }
  }

 private:
  bool OneIn(unsigned cases) { return random_() % cases == 0; }

  void Step() {
    switch (random_() % 4) {
      case 0:
        if (!OneIn(4)) return;
        state_.End();
        ending_ = true;
        return;
      case 1:
        if (turn_) EndTurn();
        return;
      case 2:
        if (tasks_ > 0) {
          state_.EndTask();
          --tasks_;
        }
        return;
      default:
        if (!finished_ && !next_) Message();
    }
  }

  void Message() {
    state_.BeginTask();
    ++tasks_;
    if (turn_) {
      state_.Queue();
      next_ = true;
      return;
    }
    turn_ = !ending_;
    ASSERT_EQ(state_.Begin(), turn_);
  }

  void EndTurn() {
    turn_ = false;
    const bool begins = next_ && !ending_;
    next_ = false;
    ASSERT_EQ(state_.EndTurn(), begins);
    if (!begins) return;
    ++tasks_;
    turn_ = true;
    ASSERT_TRUE(state_.Begin());
  }

  std::mt19937_64 random_;
  ChatState state_;
  bool turn_ = false, next_ = false, ending_ = false, finished_ = false;
  int tasks_ = 0;
};

TEST(StreamStateTest, ChatsInRandomOrdersMatchTheFlags) {
  const uint64_t seed = TestSeed();
  for (uint64_t i = 0; i < 20000 && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(i);
    RandomChat(seed + i).Run();
  }
}

}  // namespace
}  // namespace rivulet
