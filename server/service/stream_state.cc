// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/service/stream_state.h"

#include <cstddef>
#include <optional>

#include "kernels/base/check.h"

namespace rivulet {
namespace {

constexpr auto kBug = std::nullopt;  // an event that cannot happen there

using enum CallState::Phase;
// clang-format off
constexpr std::optional<CallState::Phase> kCallTable[][6] = {
    // kStop            kSayLast   kWritten          kBreak   kEndCancelled     kEnd
    {kStopping,         kSaidLast, kOpen,            kBroken, kEnded,           kEnded},  // kOpen
    {kStopping,         kStopped,  kStopping,        kBroken, kSayingCancelled, kEnded},  // kStopping
    {kStopped,          kSaidLast, kSaidLast,        kBroken, kEnded,           kEnded},  // kSaidLast
    {kStopped,          kStopped,  kStopped,         kBroken, kEndedByStop,     kEnded},  // kStopped
    {kBroken,           kBroken,   kBroken,          kBroken, kEnded,           kEnded},  // kBroken
    {kSayingCancelled,  kBug,      kEndedByStop,     kEnded,  kBug,             kBug},    // kSayingCancelled
    {kEnded,            kBug,      kBug,             kBug,    kBug,             kBug},    // kEnded
    {kEndedByStop,      kBug,      kBug,             kBug,    kBug,             kBug},    // kEndedByStop
};

using enum ChatState::Phase;
constexpr std::optional<ChatState::Phase> kChatTable[][5] = {
    // kBegin  kQueue        kTurnEnd  kEnd         kFinish
    {kTurn,    kBug,         kBug,     kEnding,     kBug},       // kIdle
    {kBug,     kTurnAndNext, kIdle,    kEndingTurn, kBug},       // kTurn
    {kBug,     kBug,         kIdle,    kEndingTurn, kBug},       // kTurnAndNext
    {kEnding,  kBug,         kBug,     kEnding,     kFinished},  // kEnding
    {kBug,     kEndingTurn,  kEnding,  kEndingTurn, kBug},       // kEndingTurn
    {kBug,     kBug,         kBug,     kFinished,   kBug},       // kFinished
};
// clang-format on

template <typename Phase, typename Event, size_t kPhases, size_t kEvents>
Phase Next(const std::optional<Phase> (&table)[kPhases][kEvents], Phase phase, Event event) {
  const std::optional<Phase> next = table[static_cast<size_t>(phase)][static_cast<size_t>(event)];
  RIVULET_CHECK(next.has_value(), "an event that cannot happen in this state");
  return *next;
}

}  // namespace

void CallState::Apply(Event event) { phase_ = Next(kCallTable, phase_, event); }

bool CallState::said_last() const {
  return phase_ != kOpen && phase_ != kStopping && phase_ != kBroken;
}

bool CallState::BeginWrite(bool last) {
  if (last) Apply(Event::kSayLast);
  if (phase_ == kBroken) return false;
  ++in_flight_;
  return true;
}

void CallState::EndWrite(bool ok) {
  --in_flight_;
  Apply(ok ? Event::kWritten : Event::kBreak);
}

void CallState::End(bool cancelled) {
  Apply(cancelled ? Event::kEndCancelled : Event::kEnd);
  if (phase_ == kSayingCancelled) ++in_flight_;
}

bool CallState::BeginCut() {
  if (phase_ >= kSayingCancelled) return false;
  Apply(Event::kBreak);
  ++in_flight_;
  return true;
}

void ChatState::Apply(Event event) { phase_ = Next(kChatTable, phase_, event); }

bool ChatState::Begin() {
  Apply(Event::kBegin);
  return phase_ == kTurn;
}

bool ChatState::EndTurn() {
  const bool next = phase_ == kTurnAndNext;
  Apply(Event::kTurnEnd);
  if (next) BeginTask();
  return next;
}

bool ChatState::Finish() {
  if (phase_ != kEnding || tasks_ > 0) return false;
  Apply(Event::kFinish);
  return true;
}

}  // namespace rivulet
