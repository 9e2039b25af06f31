// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/rpc/chat_streams.h"

namespace rivulet {
namespace {

absl::Status ShuttingDown() {
  return absl::UnavailableError("the server is shutting down; open the stream elsewhere");
}

}  // namespace

absl::Status ChatStreams::Add(const std::shared_ptr<IdleEnder>& stream) {
  MutexLock lock(&mutex_);
  if (draining_) return ShuttingDown();
  streams_[stream.get()] = stream;
  return absl::OkStatus();
}

void ChatStreams::Remove(IdleEnder* stream) {
  MutexLock lock(&mutex_);
  streams_.erase(stream);
}

void ChatStreams::Drain() {
  std::map<IdleEnder*, std::weak_ptr<IdleEnder>>
      streams;  // a copy: EndWhenIdle needs the lock to be free
  {
    MutexLock lock(&mutex_);
    draining_ = true;
    streams = streams_;
  }
  for (const auto& [address, weak] : streams) {
    if (const std::shared_ptr<IdleEnder> stream = weak.lock()) stream->EndWhenIdle(ShuttingDown());
  }
}

}  // namespace rivulet
