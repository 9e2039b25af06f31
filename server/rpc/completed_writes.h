// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Runs the callback of a write on the thread that started the write.
//
// gRPC puts the end of every operation into one completion queue, and its threads, as many as half
// of the cores, wait there and run the callbacks. Nearly every write ends within StartWrite, so
// each message woke one or two of these threads for a callback of a microsecond. StartWriteHere
// keeps that one event out of the queue (grpc_completion_queue_thread_local_cache_init) and runs
// its callback. Only the handler of a call knows the queue: NotingHandler wraps the handlers of the
// methods that stream. Without it, and for a write that ends later, all is as with StartWrite.
#ifndef RIVULET_SERVER_RPC_COMPLETED_WRITES_H_
#define RIVULET_SERVER_RPC_COMPLETED_WRITES_H_

#include <grpc/grpc.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/support/byte_buffer.h>

#include <utility>

namespace rivulet {

// All calls of a process have the same queue.
void NoteCompletionQueue(grpc_completion_queue* queue);

// A handler of gRPC's, which notes the queue of each call.
template <typename Handler>
class NotingHandler final : public grpc::internal::MethodHandler {
 public:
  template <typename Start>
  explicit NotingHandler(Start start) : handler_(std::move(start)) {}

  void RunHandler(const HandlerParameter& call) override {
    NoteCompletionQueue(call.call->cq()->cq());
    handler_.RunHandler(call);
  }
  void* Deserialize(grpc_call* call, grpc_byte_buffer* request, grpc::Status* status,
                    void** data) override {
    return handler_.Deserialize(call, request, status, data);
  }

 private:
  Handler handler_;
};

// While it lives, the first operation that ends on this thread is kept out of the queue; the
// destructor runs its callback. Within such a callback it does nothing, so that a stream which
// always has more to write does not keep the thread.
class CompletionHere {
 public:
  CompletionHere();
  ~CompletionHere();
  CompletionHere(const CompletionHere&) = delete;
  CompletionHere& operator=(const CompletionHere&) = delete;

 private:
  grpc_completion_queue* queue_;
};

// Starts a write. OnWriteDone and OnDone may be called before this returns, so the reactor must not
// be used afterwards, and the caller holds no lock.
template <typename Reactor>
void StartWriteHere(Reactor& reactor, const grpc::ByteBuffer* bytes) {
  const CompletionHere completion;
  reactor.StartWrite(bytes);
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_COMPLETED_WRITES_H_
