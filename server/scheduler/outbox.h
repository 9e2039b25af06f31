// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Where the engine thread leaves what a stream shall send, and never waits. One outbox a stream
// (all n completions of a request). What comes while a write is in flight is merged into the
// completion's next message, so a slow reader gets fewer and larger messages.
//
// Bounded: from `capacity_tokens` on the outbox is full and the scheduler leaves the stream's rows
// out of its plans until the reader has taken something. A push is never refused, so the tokens of
// the step in progress still fit: at most capacity + n - 1 tokens wait.
//
// Threading: Push and Close on the engine thread, Take and Deliver on any other, all at once.
#ifndef RIVULET_SERVER_SCHEDULER_OUTBOX_H_
#define RIVULET_SERVER_SCHEDULER_OUTBOX_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "server/scheduler/stream_message.h"

namespace rivulet {

// The reader's side of an outbox, implemented by server/rpc: this is all that the scheduler knows
// of a stream.
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  // There is something to Take. On the dispatcher's thread; must not wait for the client.
  virtual void OnReady() = 0;
};

class Outbox {
 public:
  static constexpr size_t kDefaultCapacityTokens = 256;

  // A sink that is gone is no longer told.
  explicit Outbox(std::weak_ptr<StreamSink> sink, size_t capacity_tokens = kDefaultCapacityTokens);

  // `on_room` is called, without a lock held, when a Take makes a full outbox not full. Set once,
  // before the first Push.
  void set_on_room(std::function<void()> on_room) { on_room_ = std::move(on_room); }

  // Push and Close return true when the caller must hand the outbox to the dispatcher: it holds
  // something that its sink has not been told of.
  [[nodiscard]] bool Push(StreamMessage message);
  // Nothing more comes. The status ends the stream after everything pushed.
  [[nodiscard]] bool Close(absl::Status status);
  bool full() const;
  // The client has not read for too long. Whoever writes to it may cut the connection, since its
  // write in flight may never end; what waits here is lost then.
  void Abandon();
  bool abandoned() const;

  struct Taken {
    std::optional<StreamMessage> message;
    std::optional<absl::Status> end;  // after the last message
  };
  // One message, of the completion that has waited longest; or the end; or nothing, when nothing is
  // there now.
  Taken Take();

  // Tells the sink. On the dispatcher's thread.
  void Deliver();

 private:
  bool Announce() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::weak_ptr<StreamSink> sink_;
  const size_t capacity_;
  std::function<void()> on_room_;
  mutable Mutex mutex_;
  std::deque<StreamMessage> waiting_ ABSL_GUARDED_BY(mutex_);  // at most one an index
  size_t tokens_ ABSL_GUARDED_BY(mutex_) = 0;                  // in waiting_
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
  bool announced_ ABSL_GUARDED_BY(mutex_) = false;  // handed to the dispatcher, not yet delivered
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_OUTBOX_H_
