// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/outbox.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/thread_name.h"

namespace rivulet {
namespace {

template <typename T>
void MoveAppend(std::vector<T>&& from, std::vector<T>& to) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

void StreamMessage::Merge(StreamMessage&& later) {
  RIVULET_CHECK(index == later.index, "messages of two completions");
  RIVULET_CHECK(finish_reason == FinishReason::kNone, "a message after the last one");
  text += later.text;
  MoveAppend(std::move(later.tokens), tokens);
  MoveAppend(std::move(later.logprobs), logprobs);
  MoveAppend(std::move(later.prompt_logprobs), prompt_logprobs);
  finish_reason = later.finish_reason;
  matched_stop = std::move(later.matched_stop);
  usage = later.usage;
}

Outbox::Outbox(std::weak_ptr<StreamSink> sink, size_t capacity_tokens)
    : sink_(std::move(sink)), capacity_(capacity_tokens) {}

bool Outbox::Announce() {
  const bool must_announce = !announced_;
  announced_ = true;
  return must_announce;
}

bool Outbox::Push(StreamMessage message) {
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

bool Outbox::full(size_t more) const {
  MutexLock lock(&mutex_);
  return tokens_ + more >= capacity_;
}

Outbox::Taken Outbox::Take() {
  Taken taken;
  bool made_room = false;
  {
    MutexLock lock(&mutex_);
    if (!waiting_.empty()) {
      taken.message = std::move(waiting_.front());
      waiting_.pop_front();
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

Dispatcher::Dispatcher() : thread_([this] { Run(); }) {}

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
  {
    MutexLock lock(&mutex_);
    MoveAppend(std::move(outboxes), ready_);
  }
  announced_.NotifyOne();
  outboxes.clear();
}

bool Dispatcher::WaitForWork(std::vector<std::shared_ptr<Outbox>>& work) {
  MutexLock lock(&mutex_);
  while (ready_.empty() && !stopping_) announced_.Wait(&mutex_);
  work.swap(ready_);
  return !work.empty();
}

void Dispatcher::Run() {
  NameThisThread("rivulet-streams");
  std::vector<std::shared_ptr<Outbox>> work;
  while (WaitForWork(work)) {
    for (const std::shared_ptr<Outbox>& outbox : work) outbox->Deliver();
    work.clear();
  }
}

}  // namespace rivulet
