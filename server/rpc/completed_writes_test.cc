// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/rpc/completed_writes.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "gtest/gtest.h"
#include "kernels/base/mutex.h"
#include "rivulet/v1/inference.grpc.pb.h"

namespace rivulet {
namespace {

using Bytes = grpc::ByteBuffer;

thread_local int callbacks_on_this_thread = 0;

// Counts the writes that have ended. A callback starts the next write, as many times as Write asks.
class Writer final : public grpc::ServerWriteReactor<Bytes> {
 public:
  // Returns when the write and those that follow it have ended.
  void Write(int more) {
    {
      MutexLock lock(&mutex_);
      left_ = more;
      writing_ = true;
      thread_ = std::this_thread::get_id();
    }
    StartWriteHere(*this, &bytes_);
    MutexLock lock(&mutex_);
    while (writing_) changed_.Wait(&mutex_);
  }

  void OnWriteDone(bool ok) override {
    EXPECT_TRUE(ok);
    ++callbacks_on_this_thread;
    const bool more = Count();
    if (more) StartWriteHere(*this, &bytes_);
    --callbacks_on_this_thread;
  }
  void OnDone() override {}

  int ended() {
    MutexLock lock(&mutex_);
    return ended_;
  }
  int ended_on_thread_of_write() {
    MutexLock lock(&mutex_);
    return ended_here_;
  }
  int deepest() {
    MutexLock lock(&mutex_);
    return deepest_;
  }

 private:
  // Whether there is more to write.
  bool Count() {
    MutexLock lock(&mutex_);
    ++ended_;
    if (std::this_thread::get_id() == thread_) ++ended_here_;
    deepest_ = std::max(deepest_, callbacks_on_this_thread);
    writing_ = left_-- > 0;
    if (!writing_) changed_.NotifyAll();
    return writing_;
  }

  const Bytes bytes_{[] {
    const grpc::Slice empty("");
    return Bytes(&empty, 1);
  }()};
  Mutex mutex_;
  CondVar changed_;
  std::thread::id thread_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  int left_ ABSL_GUARDED_BY(mutex_) = 0, ended_ ABSL_GUARDED_BY(mutex_) = 0;
  int ended_here_ ABSL_GUARDED_BY(mutex_) = 0, deepest_ ABSL_GUARDED_BY(mutex_) = 0;
};

using RawGenerate = v1::Inference::WithRawCallbackMethod_Generate<v1::Inference::Service>;

// Its method answers with what the test writes.
class OneWriterService final : public RawGenerate {
 public:
  explicit OneWriterService(Writer& writer) : writer_(writer) {
    using Handler = grpc::internal::CallbackServerStreamingHandler<Bytes, Bytes>;
    MarkMethodRawCallback(0, new NotingHandler<Handler>([this](grpc::CallbackServerContext*,
                                                               const Bytes*) { return Begin(); }));
  }
  void WaitForCall() {
    MutexLock lock(&mutex_);
    while (!called_) changed_.Wait(&mutex_);
  }

 private:
  grpc::ServerWriteReactor<Bytes>* Begin() {
    MutexLock lock(&mutex_);
    called_ = true;
    changed_.NotifyAll();
    return &writer_;
  }

  Writer& writer_;
  Mutex mutex_;
  CondVar changed_;
  bool called_ ABSL_GUARDED_BY(mutex_) = false;
};

// One call, whose client reads all there is when all has been written. Before that it sends
// nothing, so no thread of gRPC is at work on the connection, which would end the writes in our
// place.
class CompletedWritesTest : public testing::Test {
 protected:
  CompletedWritesTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    client_ = std::thread([this, port] {
      const auto stub = v1::Inference::NewStub(grpc::CreateChannel(
          "127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
      grpc::ClientContext context;
      const auto reader = stub->Generate(&context, v1::GenerateRequest());
      v1::GenerateResponse message;
      has_written_.wait();
      while (reader->Read(&message)) ++read_;
      EXPECT_TRUE(reader->Finish().ok());
    });
    service_.WaitForCall();
  }
  ~CompletedWritesTest() override {
    has_written_.count_down();
    writer_.Finish(grpc::Status::OK);
    client_.join();
    EXPECT_EQ(read_, writer_.ended());
    server_->Shutdown();
  }

  Writer writer_;
  OneWriterService service_{writer_};
  std::unique_ptr<grpc::Server> server_;
  std::latch has_written_{1};
  std::thread client_;
  int read_ = 0;  // the client's
};

TEST_F(CompletedWritesTest, MostWritesEndOnTheThreadThatStartedThem) {
  for (int i = 0; i < 100; ++i) writer_.Write(/*more=*/0);
  EXPECT_EQ(writer_.ended(), 100);
  EXPECT_GT(writer_.ended_on_thread_of_write(), 50);
}

TEST_F(CompletedWritesTest, AStreamThatAlwaysHasMoreDoesNotKeepTheThread) {
  writer_.Write(/*more=*/1000);
  EXPECT_EQ(writer_.ended(), 1001);
  EXPECT_LE(writer_.deepest(), 2);
}

}  // namespace
}  // namespace rivulet
