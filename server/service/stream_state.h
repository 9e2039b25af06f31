// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The states of a call that generates and of a Chat stream. The tables of their transitions are at
// the top of stream_state.cc. No gRPC, no I/O; the owner's mutex guards them.
#ifndef RIVULET_SERVER_SERVICE_STREAM_STATE_H_
#define RIVULET_SERVER_SERVICE_STREAM_STATE_H_

#include <cstdint>

namespace rivulet {

class CallState {
 public:
  enum class Phase : uint8_t {
    kOpen,
    kStopping,         // the client cancelled; the last message is still to come
    kSaidLast,         // a message with finish_reason is being sent or was
    kStopped,          // the same, and the client cancelled
    kBroken,           // a write failed or the call was cut off: nothing more is sent
    kSayingCancelled,  // the scheduler sent no last message, so we do
    kEnded,            // with the status that the scheduler gave
    kEndedByStop,      // with OK
  };
  enum class Event : uint8_t { kStop, kSayLast, kWritten, kBreak, kEndCancelled, kEnd };

  Phase phase() const { return phase_; }
  bool ended() const { return phase_ >= Phase::kEnded; }
  // The client may know that the call is over.
  bool said_last() const;
  // What comes next can be taken: no write or cut is in flight and there is more to come.
  bool may_take() const { return in_flight_ == 0 && phase_ < Phase::kSayingCancelled; }

  void Stop() { Apply(Event::kStop); }
  // `last`: the message has a finish_reason. False: the message is to be dropped.
  bool BeginWrite(bool last);
  void EndWrite(bool ok);
  // The scheduler has nothing more to say. In kSayingCancelled afterwards, the write of that
  // message has begun.
  void End(bool cancelled);
  // Cancelling the call of a client that does not read; it does not end before EndCut. False: it is
  // over already.
  bool BeginCut();
  void EndCut() { --in_flight_; }

 private:
  void Apply(Event event);

  Phase phase_ = Phase::kOpen;
  int in_flight_ = 0;  // writes and cuts, which need the call
};

class ChatState {
 public:
  enum class Phase : uint8_t {
    kIdle,
    kTurn,
    kTurnAndNext,  // the turn has said its last message, and the next turn waits for its end
    kEnding,       // waits for tasks alone
    kEndingTurn,   // waits for the turn, then for tasks
    kFinished,
  };
  enum class Event : uint8_t { kBegin, kQueue, kTurnEnd, kEnd, kFinish };

  Phase phase() const { return phase_; }

  void BeginTask() { ++tasks_; }
  void EndTask() { --tasks_; }
  // A turn begins. False: the stream is to end instead.
  bool Begin();
  // A turn is to begin after the running one.
  void Queue() { Apply(Event::kQueue); }
  // True: the queued turn begins, as a task that counts from now on.
  bool EndTurn();
  // The stream ends as soon as nothing runs on it.
  void End() { Apply(Event::kEnd); }
  // True once: the stream is to end and nothing runs any more.
  bool Finish();

 private:
  void Apply(Event event);

  Phase phase_ = Phase::kIdle;
  int tasks_ = 0;  // which need the call
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SERVICE_STREAM_STATE_H_
