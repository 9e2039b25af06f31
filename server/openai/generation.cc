// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/generation.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"
#include "server/openai/errors.h"
#include "server/security/trace_context.h"
#include "server/service/call_status.h"

namespace rivulet::openai {
namespace {

class Generation final : public std::enable_shared_from_this<Generation> {
 public:
  Generation(const ServiceContext& service, std::unique_ptr<GenerationTask> task,
             std::shared_ptr<HttpExchange> exchange)
      : service_(service), task_(std::move(task)), exchange_(std::move(exchange)) {
    service_.calls.Add(1);
  }
  ~Generation() { service_.calls.Add(-1); }
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  void Start() {
    const HttpRequest& http = exchange_->request();
    origin_ = {task_->method(), Clock::now(), kNoDeadline, http.caller, ""};
    if (const std::string* const trace = http.Find(kTraceParentHeader)) {
      origin_.trace_id = TraceIdOf(*trace);
    }
    const std::shared_ptr<GenerationCall> first = AddCall();
    exchange_->WhenGone([self = weak_from_this()](bool stalled) {
      if (const auto generation = self.lock()) generation->CancelAll(stalled);
    });
    const size_t bytes = http.body.size();
    if (service_.pool.Run([self = shared_from_this()] { self->ReadBody(); }, bytes)) return;
    service_.metrics.CountRequest(Outcome::kRejectedQueue);
    first->Refuse(TooManyCalls());
  }

 private:
  // What one of the calls writes to.
  class Part final : public ResponseStream {
   public:
    Part(std::shared_ptr<Generation> whole, size_t index)
        : whole_(std::move(whole)), index_(index) {}

    absl::Status Prepare(v1::GenerateResponse message) override {
      return whole_->Prepare(index_, std::move(message));
    }
    void Send() override { whole_->Send(index_); }
    void CutOff() override { whole_->exchange_->Cut(); }
    void OnGenerationEnd(const absl::Status& status) override { whole_->OnCallEnd(status); }

   private:
    const std::shared_ptr<Generation> whole_;
    const size_t index_;
  };

  std::shared_ptr<GenerationCall> AddCall() {
    MutexLock lock(&mutex_);
    auto part = std::make_shared<Part>(shared_from_this(), calls_.size());
    calls_.push_back(std::make_shared<GenerationCall>(service_, origin_, std::move(part)));
    if (cancelled_) calls_.back()->Cancel();
    return calls_.back();
  }

  // Null behind the last one. Needs no memory.
  std::shared_ptr<GenerationCall> CallAt(size_t index) {
    MutexLock lock(&mutex_);
    return index < calls_.size() ? calls_[index] : nullptr;
  }

  // `stalled`: the client does not read.
  void CancelAll(bool stalled = false) {
    {
      MutexLock lock(&mutex_);
      cancelled_ = true;
    }
    for (size_t i = 0; const auto call = CallAt(i); ++i) call->Cancel(stalled);
  }

  void ReadBody() {
    std::vector<v1::GenerateRequest> requests;
    const absl::Status read = OrNoMemory([&] {
      RIVULET_ASSIGN_OR_RETURN(requests, task_->Read(exchange_->request(), CallAt(0)));
      for (size_t i = 1; i < requests.size(); ++i) AddCall();
      return absl::OkStatus();
    });
    for (size_t i = 0; const auto call = CallAt(i); ++i) {
      read.ok() ? call->Run(requests[i]) : call->Refuse(read);
    }
  }

  absl::Status Prepare(size_t call, v1::GenerateResponse message) {
    MutexLock lock(&mutex_);
    RIVULET_ASSIGN_OR_RETURN(const std::string events, task_->Add(call, std::move(message)));
    events_ += events;
    return absl::OkStatus();
  }

  void Send(size_t call) {
    MutexLock lock(&mutex_);
    waiting_.push_back(call);
    if (!writing_) Write();
  }

  // Also for a reply that is not streamed, with no bytes: the end of the write then comes on
  // another stack.
  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const bool begins = !begun_ && !events_.empty();
    if (begins) exchange_->BeginStream(Head("text/event-stream"));
    begun_ = begun_ || begins;
    writing_ = true;
    exchange_->Write(std::exchange(events_, {}),
                     [self = shared_from_this(), calls = std::exchange(waiting_, {})](bool ok) {
                       self->OnWritten(calls, ok);
                     });
  }

  void OnWritten(const std::vector<size_t>& written, bool ok) {
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      if (!waiting_.empty()) Write();
    }
    for (const size_t call : written) CallAt(call)->OnWriteDone(ok);
  }

  // With the first failure the others end too.
  void OnCallEnd(const absl::Status& status) {
    bool last = false, fails = false;
    {
      MutexLock lock(&mutex_);
      last = ++ended_ == calls_.size();
      fails = !status.ok() && status_.ok();
      status_.Update(status);
    }
    if (fails && !last) CancelAll();
    if (last) End();
  }

  void End() {
    absl::Status status;
    {
      MutexLock lock(&mutex_);
      status = status_;
    }
    if (!status.ok()) return Fail(status);
    const auto finish = [self = shared_from_this()] { self->Finish(); };
    if (!task_->large() || !service_.pool.Run(finish)) finish();
  }

  HttpResponse Head(const char* content_type) const {
    HttpResponse head;
    head.content_type = content_type;
    head.headers.push_back({"Cache-Control", "no-cache"});
    head.headers.push_back({"x-request-id", task_->request_id()});
    const std::string session = task_->session_id();
    if (!session.empty()) head.headers.push_back({"x-session-id", session});
    return head;
  }

  bool begun() {
    MutexLock lock(&mutex_);
    return begun_;
  }

  void Finish() {
    const bool begun = this->begun();
    HttpResponse response;
    const absl::Status built = OrNoMemory([&] {
      if (!begun) response = Head("application/json");
      response.body = begun ? task_->LastEvents() : task_->Whole();
      return absl::OkStatus();
    });
    if (!built.ok()) return Fail(built);
    if (!begun) return exchange_->Respond(std::move(response));
    EndStream(std::move(response.body));
  }

  void Fail(const absl::Status& status) {
    task_->Fail();
    const absl::Status explained = task_->Explain(status);
    if (!begun()) return exchange_->Respond(ErrorResponse(explained));
    EndStream(task_->ErrorEvent(explained));
  }

  void EndStream(std::string last) {
    exchange_->Write(std::move(last), [](bool) {});
    exchange_->EndStream();
  }

  const ServiceContext& service_;
  // Its Add is called with the lock; the rest before the first and after the last call of it.
  const std::unique_ptr<GenerationTask> task_;
  const std::shared_ptr<HttpExchange> exchange_;
  CallOrigin origin_;  // of all calls

  Mutex mutex_;
  // Which have their Part, and this, until they end.
  std::vector<std::shared_ptr<GenerationCall>> calls_ ABSL_GUARDED_BY(mutex_);
  size_t ended_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // the first failure
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::string events_ ABSL_GUARDED_BY(mutex_);           // of a stream, to be written
  std::vector<size_t> waiting_ ABSL_GUARDED_BY(mutex_);  // calls that wait for a write's end
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;  // the stream has
};

}  // namespace

void StartGeneration(const ServiceContext& service, std::unique_ptr<GenerationTask> task,
                     const std::shared_ptr<HttpExchange>& exchange) {
  std::make_shared<Generation>(service, std::move(task), exchange)->Start();
}

}  // namespace rivulet::openai
