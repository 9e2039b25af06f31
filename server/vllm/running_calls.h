// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The calls that Abort can name. Threading: any thread.
#ifndef RIVULET_SERVER_VLLM_RUNNING_CALLS_H_
#define RIVULET_SERVER_VLLM_RUNNING_CALLS_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "kernels/base/mutex.h"
#include "server/service/generation_call.h"

namespace rivulet::vllm_engine {

// A tenant, and the id of a request of it.
using CallKey = SessionKey;

class RunningCalls {
 public:
  // Several calls may have one id.
  void Add(const CallKey& key, const std::shared_ptr<GenerationCall>& call) {
    MutexLock lock(&mutex_);
    calls_.emplace(key, call);
  }

  void Remove(const CallKey& key, const GenerationCall* call) {
    MutexLock lock(&mutex_);
    const auto [begin, end] = calls_.equal_range(key);
    for (auto it = begin; it != end; ++it) {
      if (it->second.get() != call) continue;
      calls_.erase(it);
      return;
    }
  }

  // Those with this id end with a last message. None is left out, and an unknown id is ignored: its
  // call may have ended.
  void Stop(const CallKey& key) {
    for (const std::shared_ptr<GenerationCall>& call : Find(key)) call->Stop();
  }

 private:
  std::vector<std::shared_ptr<GenerationCall>> Find(const CallKey& key) {
    std::vector<std::shared_ptr<GenerationCall>> found;
    MutexLock lock(&mutex_);
    const auto [begin, end] = calls_.equal_range(key);
    for (auto it = begin; it != end; ++it) found.push_back(it->second);
    return found;
  }

  Mutex mutex_;
  std::multimap<CallKey, std::shared_ptr<GenerationCall>> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rivulet::vllm_engine

#endif  // RIVULET_SERVER_VLLM_RUNNING_CALLS_H_
