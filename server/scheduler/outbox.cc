// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/outbox.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/cord.h"
#include "kernels/base/check.h"
#include "kernels/base/thread_name.h"

namespace rivulet {
namespace {

constexpr char kStalledPayload[] = "rivulet.stalled";

template <typename T>
void MoveAppend(std::vector<T>&& from, std::vector<T>& to) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

template <typename T>
void MakeRoom(std::vector<T>& to, size_t more) {
  if (to.capacity() - to.size() < more) to.reserve(std::max(2 * to.capacity(), to.size() + more));
}

}  // namespace

absl::Status StalledError() {
  absl::Status stalled = absl::CancelledError(
      "the client did not read for --stalled-client-seconds, so the request was ended");
  stalled.SetPayload(kStalledPayload, absl::Cord());
  return stalled;
}

bool IsStalled(const absl::Status& status) {
  return status.GetPayload(kStalledPayload).has_value();
}

void StreamMessage::Merge(StreamMessage&& later) {
  RIVULET_CHECK(index == later.index, "messages of two completions");
  RIVULET_CHECK(finish_reason == FinishReason::kNone, "a message after the last one");
  text += later.text;
  for (const uint32_t place : later.guessed) {
    guessed.push_back(static_cast<uint32_t>(tokens.size()) + place);
  }
  tokens.insert(tokens.end(), later.tokens.begin(), later.tokens.end());
  MoveAppend(std::move(later.logprobs), logprobs);
  MoveAppend(std::move(later.prompt_logprobs), prompt_logprobs);
  finish_reason = later.finish_reason;
  matched_stop = std::move(later.matched_stop);
  fork_id = std::move(later.fork_id);
  usage = later.usage;
}

Outbox::Outbox(std::weak_ptr<StreamSink> sink, size_t capacity_tokens)
    : sink_(std::move(sink)), capacity_(capacity_tokens) {}

bool Outbox::Announce() {
  const bool must_announce = !announced_;
  announced_ = true;
  return must_announce;
}

bool Outbox::Push(StreamMessage&& message) {
  MutexLock lock(&mutex_);
  RIVULET_CHECK(!end_.has_value(), "push into a closed outbox");
  tokens_ += message.tokens.size();
  const auto same = std::find_if(waiting_.begin(), waiting_.end(), [&](const StreamMessage& other) {
    return other.index == message.index;
  });
  if (same != waiting_.end()) {
    same->Merge(std::move(message));
  } else {
    waiting_.push_back(std::move(message));
  }
  return Announce();
}

bool Outbox::Close(absl::Status status) {
  MutexLock lock(&mutex_);
  RIVULET_CHECK(!end_.has_value(), "an outbox is closed once");
  end_ = std::move(status);
  return Announce();
}

bool Outbox::urgent() const {
  MutexLock lock(&mutex_);
  return !taken_ || end_.has_value();
}

bool Outbox::full(size_t more) const {
  MutexLock lock(&mutex_);
  return tokens_ + more >= capacity_;
}

size_t Outbox::room() const {
  MutexLock lock(&mutex_);
  return capacity_ - std::min(capacity_, tokens_);
}

Outbox::Taken Outbox::Take() {
  Taken taken;
  bool made_room = false;
  {
    MutexLock lock(&mutex_);
    if (!waiting_.empty()) {
      taken_ = true;
      taken.message = std::move(waiting_.front());
      waiting_.erase(waiting_.begin());
      const bool was_full = tokens_ >= capacity_;
      tokens_ -= taken.message->tokens.size();
      made_room = was_full && tokens_ < capacity_;
    } else {
      taken.end = end_;
    }
  }
  if (made_room && on_room_) on_room_();
  return taken;
}

void Outbox::Deliver() {
  {
    MutexLock lock(&mutex_);
    announced_ = false;
  }
  if (const std::shared_ptr<StreamSink> sink = sink_.lock()) sink->OnReady();
}

Dispatcher::Dispatcher(std::chrono::microseconds message_time)
    : message_time_(message_time), thread_([this] { Run(); }) {}

Dispatcher::~Dispatcher() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  announced_.NotifyOne();
  thread_.join();
}

void Dispatcher::Announce(std::vector<std::shared_ptr<Outbox>>& outboxes) {
  if (outboxes.empty()) return;
  const auto first_urgent =
      std::partition(outboxes.begin(), outboxes.end(),
                     [](const std::shared_ptr<Outbox>& outbox) { return !outbox->urgent(); });
  bool wakes = false;
  {
    MutexLock lock(&mutex_);
    wakes = ready_.empty() || first_urgent != outboxes.end();
    MakeRoom(urgent_, outboxes.size());  // first: what follows must not fail half-way
    MakeRoom(ready_, outboxes.size());
    urgent_.insert(urgent_.end(), std::make_move_iterator(first_urgent),
                   std::make_move_iterator(outboxes.end()));
    ready_.insert(ready_.end(), std::make_move_iterator(outboxes.begin()),
                  std::make_move_iterator(first_urgent));
  }
  if (wakes) announced_.NotifyOne();
  outboxes.clear();
}

// Fills `work` with what is urgent, and after the pause with everything.
bool Dispatcher::WaitForWork(std::vector<std::shared_ptr<Outbox>>& work) {
  MutexLock lock(&mutex_);
  while (urgent_.empty() && !stopping_) {
    if (ready_.empty()) {
      announced_.Wait(&mutex_);
    } else if (std::chrono::steady_clock::now() >= pause_ends_) {
      break;
    } else {
      announced_.WaitUntil(&mutex_, pause_ends_);
    }
  }
  work.swap(urgent_);
  if (stopping_ || std::chrono::steady_clock::now() >= pause_ends_) {
    MoveAppend(std::move(ready_), work);
    ready_.clear();
  }
  return !work.empty();
}

void Dispatcher::Run() {
  NameThisThread("rivulet-streams");
  std::vector<std::shared_ptr<Outbox>> work;
  while (WaitForWork(work)) {
    for (const std::shared_ptr<Outbox>& outbox : work) outbox->Deliver();
    const auto now = std::chrono::steady_clock::now();
    pause_ends_ =
        std::min(std::max(now, pause_ends_) + message_time_ * static_cast<int64_t>(work.size()),
                 now + kLongestPause);
    work.clear();
  }
}

}  // namespace rivulet
