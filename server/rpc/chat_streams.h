// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The open Chat streams, so that a drain can end the idle ones. Threading: any thread. It outlives
// the streams' calls.
#ifndef RIVULET_SERVER_RPC_CHAT_STREAMS_H_
#define RIVULET_SERVER_RPC_CHAT_STREAMS_H_

#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/base/mutex.h"

namespace rivulet {

class ChatReactor;  // chat_reactor.cc

class ChatStreams {
 public:
  // UNAVAILABLE once draining.
  absl::Status Add(const std::shared_ptr<ChatReactor>& stream);
  void Remove(ChatReactor* stream);
  // Each stream ends with UNAVAILABLE as soon as no turn runs on it, now if none does. Add refuses
  // from now on.
  void Drain();

 private:
  Mutex mutex_;
  std::map<ChatReactor*, std::weak_ptr<ChatReactor>> streams_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_CHAT_STREAMS_H_
