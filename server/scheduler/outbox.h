// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The messages that wait to be sent on one stream (all n completions of a request). The engine
// thread pushes without waiting. Messages that arrive during a write are merged into the
// completion's next message, so a slow reader gets fewer and larger messages.
//
// Bounded: with `capacity_tokens` tokens the outbox is full, and the scheduler leaves the stream's
// rows out of its plans until the reader has taken some. A push is never refused, so the tokens of
// one more step fit: at most capacity + n - 1 tokens wait.
//
// Threading: Push and Close on the engine thread, Take and Deliver on any other, concurrently.
#ifndef RIVULET_SERVER_SCHEDULER_OUTBOX_H_
#define RIVULET_SERVER_SCHEDULER_OUTBOX_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "server/scheduler/stream_message.h"

namespace rivulet {

// The reader's side of an outbox, implemented by server/service. The scheduler knows nothing else
// of a stream.
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  // There is something to Take. On the dispatcher's thread; must not wait for the client.
  virtual void OnReady() = 0;
};

// How a request ends whose client does not read: CANCELLED, which IsStalled tells from others.
absl::Status StalledError();
bool IsStalled(const absl::Status& status);

class Outbox {
 public:
  static constexpr size_t kDefaultCapacityTokens = 256;

  // The sink is not notified once it has been destroyed.
  explicit Outbox(std::weak_ptr<StreamSink> sink, size_t capacity_tokens = kDefaultCapacityTokens);

  // `on_room` is called, without a lock held, when a Take makes a full outbox not full. Set once,
  // before the first Push.
  void set_on_room(std::function<void()> on_room) { on_room_ = std::move(on_room); }

  // Push and Close return true when the caller must hand the outbox to the dispatcher: the sink has
  // not been notified of what it holds.
  [[nodiscard]] bool Push(StreamMessage&& message);
  // Nothing more comes. The status ends the stream after everything pushed.
  [[nodiscard]] bool Close(absl::Status status);
  // What it holds should not wait for the dispatcher's pause: nothing has been taken yet, or the
  // end is known.
  bool urgent() const;
  // True once it holds its capacity, or would with `more` tokens.
  bool full(size_t more = 0) const;
  // Tokens until then.
  size_t room() const;
  // The client has not read for too long. The call's owner may cut the connection, since the write
  // in flight may never end; messages that wait here are lost then.
  void Abandon() { abandoned_ = true; }
  bool abandoned() const { return abandoned_; }

  struct Taken {
    std::optional<StreamMessage> message;
    std::optional<absl::Status> end;  // after the last message
  };
  // One message, of the completion that has waited longest; or the end; or nothing, if the outbox
  // is empty now.
  Taken Take();

  // Notifies the sink. On the dispatcher's thread.
  void Deliver();

 private:
  bool Announce() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::weak_ptr<StreamSink> sink_;
  const size_t capacity_;
  std::function<void()> on_room_;
  std::atomic<bool> abandoned_{false};
  mutable Mutex mutex_;
  // At most one an index, and thus rarely more than one.
  absl::InlinedVector<StreamMessage, 1> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t tokens_ ABSL_GUARDED_BY(mutex_) = 0;  // in waiting_
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool announced_ ABSL_GUARDED_BY(mutex_) = false;  // handed to the dispatcher, not yet delivered
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;      // a message was
};

// One thread that notifies streams of messages in their outboxes. A gRPC write costs the thread
// that starts it about 7 µs, so the engine thread leaves that to this one: 64 streams a step would
// hold it up by half a millisecond.
//
// A message costs the process 10 to 25 µs, most of them in gRPC and the kernel, and hardly more
// with ten tokens than with one. So after notifying n streams it pauses n times `message_time`,
// during which tokens gather in the outboxes: at most 1 / message_time messages a second, however
// many tokens. A single stream never notices; 256 streams get a message every 16 ms
// (bench/results/streaming_threads.txt). No pause is longer than kLongestPause. First messages and
// ends are not held back.
class Dispatcher {
 public:
  static constexpr std::chrono::microseconds kMessageTime{50};
  static constexpr std::chrono::microseconds kLongestPause{50'000};

  explicit Dispatcher(std::chrono::microseconds message_time = kMessageTime);
  // Delivers what was announced, then ends.
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // Delivers each outbox soon, in order. `outboxes` comes back empty. Any thread; never waits for a
  // stream.
  void Announce(std::vector<std::shared_ptr<Outbox>>& outboxes);

 private:
  void Run();
  bool WaitForWork(std::vector<std::shared_ptr<Outbox>>& work);

  const std::chrono::microseconds message_time_;
  std::chrono::steady_clock::time_point pause_ends_;  // its thread's
  Mutex mutex_;
  CondVar announced_;
  std::vector<std::shared_ptr<Outbox>> ready_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Outbox>> urgent_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_OUTBOX_H_
