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

class RunningCalls {
 public:
  // Several calls may have one id.
  void Add(const std::string& request_id, const std::shared_ptr<GenerationCall>& call) {
    MutexLock lock(&mutex_);
    calls_.emplace(request_id, call);
  }

  void Remove(const std::string& request_id, const GenerationCall* call) {
    MutexLock lock(&mutex_);
    const auto [begin, end] = calls_.equal_range(request_id);
    for (auto it = begin; it != end; ++it) {
      if (it->second.get() != call) continue;
      calls_.erase(it);
      return;
    }
  }

  // Those with this id end with a last message. None is left out, and an unknown id is ignored: its
  // call may have ended.
  void Stop(const std::string& request_id) {
    for (const std::shared_ptr<GenerationCall>& call : Find(request_id)) call->Stop();
  }

 private:
  std::vector<std::shared_ptr<GenerationCall>> Find(const std::string& request_id) {
    std::vector<std::shared_ptr<GenerationCall>> found;
    MutexLock lock(&mutex_);
    const auto [begin, end] = calls_.equal_range(request_id);
    for (auto it = begin; it != end; ++it) found.push_back(it->second);
    return found;
  }

  Mutex mutex_;
  std::multimap<std::string, std::shared_ptr<GenerationCall>> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rivulet::vllm_engine

#endif  // RIVULET_SERVER_VLLM_RUNNING_CALLS_H_
