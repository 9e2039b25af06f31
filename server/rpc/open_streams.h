// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The open streams of turns, so that a drain can end the idle ones.
// Threading: any thread. It outlives the streams' calls.
#ifndef RIVULET_SERVER_RPC_OPEN_STREAMS_H_
#define RIVULET_SERVER_RPC_OPEN_STREAMS_H_

#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/base/mutex.h"

namespace rivulet {

class OpenStream {
 public:
  virtual ~OpenStream() = default;
  // The stream ends with `status` as soon as no turn runs on it, now if none does. Any thread.
  virtual void EndWhenIdle(const absl::Status& status) = 0;
};

class OpenStreams {
 public:
  // UNAVAILABLE once draining.
  absl::Status Add(const std::shared_ptr<OpenStream>& stream) {
    MutexLock lock(&mutex_);
    if (draining_) return ShuttingDown();
    streams_[stream.get()] = stream;
    return absl::OkStatus();
  }
  void Remove(OpenStream* stream) {
    MutexLock lock(&mutex_);
    streams_.erase(stream);
  }
  // Each stream ends with UNAVAILABLE as soon as no turn runs on it. Add refuses from now on.
  void Drain() {
    decltype(streams_) streams;  // a copy: EndWhenIdle needs the lock to be free
    {
      MutexLock lock(&mutex_);
      draining_ = true;
      streams = streams_;
    }
    for (const auto& [address, weak] : streams) {
      if (const std::shared_ptr<OpenStream> stream = weak.lock()) {
        stream->EndWhenIdle(ShuttingDown());
      }
    }
  }

 private:
  static absl::Status ShuttingDown() {
    return absl::UnavailableError("the server is shutting down; open the stream elsewhere");
  }

  Mutex mutex_;
  std::map<OpenStream*, std::weak_ptr<OpenStream>> streams_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_OPEN_STREAMS_H_
