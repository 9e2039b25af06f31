// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_RPC_COUNTED_REACTOR_H_
#define RIVULET_SERVER_RPC_COUNTED_REACTOR_H_

#include <memory>
#include <utility>

#include "server/service/service_context.h"

namespace rivulet {

// A gRPC reactor that is counted while it exists. Once it was told to Own itself, it lives until
// gRPC has sent the status (OnDone), or as long as a turn or the dispatcher still refers to it.
template <typename Reactor>
class CountedReactor : public Reactor {
 public:
  explicit CountedReactor(CallCount& calls) : calls_(calls) { calls_.Add(1); }
  ~CountedReactor() override { calls_.Add(-1); }

  void Own(std::shared_ptr<void> self) { self_ = std::move(self); }
  void OnDone() override { const std::shared_ptr<void> self = std::move(self_); }

 private:
  CallCount& calls_;
  std::shared_ptr<void> self_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_COUNTED_REACTOR_H_
