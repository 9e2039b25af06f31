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

// A stream that a drain can end.
class IdleEnder {
 public:
  virtual ~IdleEnder() = default;
  // The stream ends with `status` as soon as no turn runs, now if none does.
  virtual void EndWhenIdle(const absl::Status& status) = 0;
};

class ChatStreams {
 public:
  // UNAVAILABLE once draining.
  absl::Status Add(const std::shared_ptr<IdleEnder>& stream);
  void Remove(IdleEnder* stream);
  // EndWhenIdle for all; Add refuses from now on.
  void Drain();

 private:
  Mutex mutex_;
  std::map<IdleEnder*, std::weak_ptr<IdleEnder>> streams_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_CHAT_STREAMS_H_
