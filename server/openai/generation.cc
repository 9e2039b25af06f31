// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/generation.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/status.h"
#include "server/openai/errors.h"
#include "server/security/trace_context.h"
#include "server/service/call_status.h"

namespace rivulet::openai {
namespace {

class Generation final : public ResponseStream, public std::enable_shared_from_this<Generation> {
 public:
  Generation(const ServiceContext& service, std::unique_ptr<GenerationTask> task,
             std::shared_ptr<HttpExchange> exchange)
      : service_(service), task_(std::move(task)), exchange_(std::move(exchange)) {
    service_.calls.Add(1);
  }
  ~Generation() override { service_.calls.Add(-1); }

  void Start() {
    const HttpRequest& http = exchange_->request();
    CallOrigin origin = {task_->method(), Clock::now(), kNoDeadline, http.caller, ""};
    if (const std::string* const trace = http.Find(kTraceParentHeader)) {
      origin.trace_id = TraceIdOf(*trace);
    }
    call_ = std::make_shared<GenerationCall>(service_, std::move(origin), shared_from_this());
    exchange_->WhenGone([call = call_] { call->Cancel(); });
    const size_t bytes = http.body.size();
    if (service_.pool.Run([self = shared_from_this()] { self->ReadBody(); }, bytes)) return;
    service_.metrics.CountRequest(Outcome::kRejectedQueue);
    call_->Refuse(TooManyCalls());
  }

  absl::Status Prepare(v1::GenerateResponse message) override {
    RIVULET_ASSIGN_OR_RETURN(events_, task_->Add(std::move(message)));
    return absl::OkStatus();
  }

  // Also for a reply that is not streamed, with no bytes: the end of the write then comes on
  // another stack.
  void Send() override {
    const bool begins = !begun_ && !events_.empty();
    if (begins) exchange_->BeginStream(Head("text/event-stream"));
    begun_ = begun_ || begins;
    exchange_->Write(std::exchange(events_, {}),
                     [call = call_](bool ok) { call->OnWriteDone(ok); });
  }

  void CutOff() override { exchange_->Cut(); }

  void OnGenerationEnd(const absl::Status& status) override {
    if (!status.ok()) return Fail(status);
    const auto finish = [self = shared_from_this()] { self->Finish(); };
    if (!task_->large() || !service_.pool.Run(finish)) finish();
  }

 private:
  void ReadBody() {
    v1::GenerateRequest request;
    const absl::Status read = OrNoMemory([&] {
      RIVULET_ASSIGN_OR_RETURN(request, task_->Read(exchange_->request(), call_));
      return absl::OkStatus();
    });
    read.ok() ? call_->Run(request) : call_->Refuse(read);
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

  void Finish() {
    HttpResponse response;
    const absl::Status built = OrNoMemory([&] {
      if (!begun_) response = Head("application/json");
      response.body = begun_ ? task_->LastEvents() : task_->Whole();
      return absl::OkStatus();
    });
    if (!built.ok()) return Fail(built);
    if (!begun_) return exchange_->Respond(std::move(response));
    EndStream(std::move(response.body));
  }

  void Fail(const absl::Status& status) {
    task_->Fail();
    if (!begun_) return exchange_->Respond(ErrorResponse(status));
    EndStream(task_->ErrorEvent(status));
  }

  void EndStream(std::string last) {
    exchange_->Write(std::move(last), [](bool) {});
    exchange_->EndStream();
  }

  const ServiceContext& service_;
  const std::unique_ptr<GenerationTask> task_;
  const std::shared_ptr<HttpExchange> exchange_;
  std::shared_ptr<GenerationCall> call_;  // which has this until its end
  // Of the thread that began the write in flight.
  std::string events_;  // of a stream; else empty
  bool begun_ = false;  // the stream has
};

}  // namespace

void StartGeneration(const ServiceContext& service, std::unique_ptr<GenerationTask> task,
                     const std::shared_ptr<HttpExchange>& exchange) {
  std::make_shared<Generation>(service, std::move(task), exchange)->Start();
}

}  // namespace rivulet::openai
