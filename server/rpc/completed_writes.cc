// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/rpc/completed_writes.h"

#include <atomic>

namespace rivulet {
namespace {

std::atomic<grpc_completion_queue*> noted_queue{nullptr};

thread_local bool runs_callback = false;

}  // namespace

void NoteCompletionQueue(grpc_completion_queue* queue) { noted_queue = queue; }

CompletionHere::CompletionHere() : queue_(runs_callback ? nullptr : noted_queue.load()) {
  if (queue_ != nullptr) grpc_completion_queue_thread_local_cache_init(queue_);
}

CompletionHere::~CompletionHere() {
  if (queue_ == nullptr) return;
  void* tag = nullptr;
  int ok = 0;
  if (grpc_completion_queue_thread_local_cache_flush(queue_, &tag, &ok) == 0) return;
  // As gRPC's threads do with what they find in the queue.
  auto* const callback = static_cast<grpc_completion_queue_functor*>(tag);
  runs_callback = true;
  callback->functor_run(callback, ok);
  runs_callback = false;
}

}  // namespace rivulet
