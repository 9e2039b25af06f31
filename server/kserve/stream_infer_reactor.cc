// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One ModelStreamInfer stream: requests that run side by side, and their responses, one write at a
// time, in the order in which they are ready. Requests of one sequence run one after the other.
//
//   gRPC thread   a request was read; it is handed to the worker pool
//   worker        parses it; begins its turn, or puts it behind its sequence's; reads the next
//   turn          ends: the next of its sequence begins
//
// What is wrong with a request is said in a response, and the stream goes on. It ends once there is
// a reason (the client's half-close, a cancel, a drain) and nothing runs.
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"
#include "server/kserve/infer_reactors.h"
#include "server/kserve/infer_turn.h"
#include "server/rpc/counted_reactor.h"
#include "server/rpc/origin.h"
#include "server/rpc/status_map.h"
#include "server/rpc/wire.h"
#include "server/service/call_status.h"

namespace rivulet::kserve {
namespace {

// Of one stream, with those whose last response is still to be written; further ones are not read
// before one of them has ended.
constexpr size_t kMostRequests = 256;

class StreamedInfer;

class StreamInferReactor final
    : public CountedReactor<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>>,
      public OpenStream,
      public std::enable_shared_from_this<StreamInferReactor> {
 public:
  StreamInferReactor(const ServiceContext& service, grpc::CallbackServerContext& context,
                     OpenStreams& streams)
      : CountedReactor(service.calls), service_(service), context_(context), streams_(streams) {}

  void Start() {
    Own(shared_from_this());
    StartRead(&wire_request_);
    OpenFor(service_, context_, streams_, shared_from_this());
  }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override {
    streams_.Remove(this);
    CountedReactor::OnDone();
  }
  void EndWhenIdle(const absl::Status& status) override;

  // ---- For its requests.

  struct PendingWrite {
    grpc::ByteBuffer bytes;
    std::shared_ptr<StreamedInfer> from;  // which is told when it is written, unless it is null
  };
  // Takes no memory.
  void Write(std::list<PendingWrite> write);
  // It has ended and said so.
  void Remove(const std::shared_ptr<StreamedInfer>& request);
  void Cut() { context_.TryCancel(); }

 private:
  void Handle(TimePoint arrival);
  absl::Status HandleMessage(TimePoint arrival);
  bool MayRun(const std::shared_ptr<StreamedInfer>& request);
  void RunOnPool(const std::shared_ptr<StreamedInfer>& request);
  void ReadOn();
  // Whether a paused stream reads on; the caller then does.
  bool Resumes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndTask();
  void FinishIfIdle();

  const ServiceContext& service_;
  grpc::CallbackServerContext& context_;
  OpenStreams& streams_;
  grpc::ByteBuffer wire_request_;  // of the read in flight, then of the task that parses it

  Mutex mutex_;
  std::set<std::shared_ptr<StreamedInfer>> requests_ ABSL_GUARDED_BY(mutex_);  // not yet ended
  // Of sequences of which a request runs: those that wait for its end.
  std::map<std::string, std::deque<std::shared_ptr<StreamedInfer>>> sequences_
      ABSL_GUARDED_BY(mutex_);
  std::list<PendingWrite> writes_ ABSL_GUARDED_BY(mutex_);  // the first is in flight
  int tasks_ ABSL_GUARDED_BY(mutex_) = 0;                   // which need the call
  bool pauses_ ABSL_GUARDED_BY(mutex_) = false;             // nothing is read
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);  // OK: the client has half-closed
};

// One request of a stream.
class StreamedInfer final : public ResponseStream,
                            public std::enable_shared_from_this<StreamedInfer> {
 public:
  StreamedInfer(const ServiceContext& service, std::shared_ptr<StreamInferReactor> stream)
      : service_(service), turn_(service), stream_(std::move(stream)) {}

  // False: it is refused, and about to say so.
  bool Open(const wire::ModelInferRequest& request, const grpc::ServerContextBase& context,
            TimePoint arrival) {
    id_ = request.id();
    const absl::StatusOr<CallerPtr> caller = CallerOf(service_, context, Scope::kGenerate);
    if (caller.ok()) caller_ = *caller;
    call_ = std::make_shared<GenerationCall>(
        service_, OriginOf("kserve.ModelStreamInfer", context, caller_, arrival),
        shared_from_this());
    absl::Status read = caller.status();
    if (read.ok()) read = OrNoMemory([&] { return turn_.Read(request, arrival, *call_); });
    if (!read.ok()) call_->Refuse(read);
    return read.ok();
  }
  const std::string& session() const { return turn_.session(); }
  void Run() { turn_.Run(*caller_, *call_); }
  void Refuse(const absl::Status& status) { call_->Refuse(status); }
  void Cancel() { call_->Cancel(); }
  void OnWriteDone(bool ok) { call_->OnWriteDone(ok); }

  absl::Status Prepare(v1::GenerateResponse message) override {
    RIVULET_ASSIGN_OR_RETURN(auto response, turn_.Add(message));
    sends_ = response.has_value();
    if (!sends_) return absl::OkStatus();
    wire::ModelStreamInferResponse streamed;
    *streamed.mutable_infer_response() = *std::move(response);
    write_.emplace_back();
    write_.front().from = shared_from_this();
    return SerializeMessage(streamed, &write_.front().bytes);
  }
  bool SendsNothing() const override { return !sends_; }
  bool LastIsSlow() const override { return turn_.LastIsSlow(); }
  void Send() override { stream_->Write(std::exchange(write_, {})); }
  void CutOff() override { stream_->Cut(); }

  void OnGenerationEnd(const absl::Status& status) override {
    turn_.End();
    if (!status.ok()) (void)OrNoMemory([&] { return SayWhy(status); });
    stream_->Remove(shared_from_this());
  }

 private:
  // Triton's errors have no code, so ours begin with it.
  absl::Status SayWhy(const absl::Status& status) {
    wire::ModelStreamInferResponse response;
    response.set_error_message(
        absl::StrCat(absl::StatusCodeToString(status.code()), ": ", ErrorText(status)));
    wire::ModelInferResponse& infer = *response.mutable_infer_response();
    infer.set_id(id_);
    infer.set_model_name(service_.model.info.name());
    auto& parameters = *infer.mutable_parameters();
    parameters["triton_final_response"].set_bool_param(true);
    const std::string retry = RetryAfterMs(status);
    if (!retry.empty()) parameters[kRetryAfterKey].set_string_param(retry);
    std::list<StreamInferReactor::PendingWrite> write(1);
    RIVULET_RETURN_IF_ERROR(SerializeMessage(response, &write.front().bytes));
    stream_->Write(std::move(write));
    return absl::OkStatus();
  }

  const ServiceContext& service_;
  InferTurn turn_;
  const std::shared_ptr<StreamInferReactor> stream_;
  std::string id_;
  CallerPtr caller_;
  std::shared_ptr<GenerationCall> call_;
  // Of the thread that began the write in flight.
  bool sends_ = false;
  std::list<StreamInferReactor::PendingWrite> write_;
};

void StreamInferReactor::OnReadDone(bool ok) {
  {
    MutexLock lock(&mutex_);
    if (finished_) return;  // the call may be gone
    tasks_ += ok ? 1 : 0;
    ends_ = ends_ || !ok;
  }
  if (!ok) return FinishIfIdle();
  const auto task = [self = shared_from_this(), arrival = Clock::now()] { self->Handle(arrival); };
  if (service_.pool.Run(task, wire_request_.Length())) return;
  service_.metrics.CountRequest(Outcome::kRejectedQueue);
  EndWhenIdle(TooManyCalls());
  EndTask();
}

void StreamInferReactor::Handle(TimePoint arrival) {
  const absl::Status handled = OrNoMemory([&] { return HandleMessage(arrival); });
  if (handled.ok()) {
    ReadOn();
  } else {
    CountRefusal(service_.metrics, handled);
    EndWhenIdle(handled);
  }
  EndTask();
}

absl::Status StreamInferReactor::HandleMessage(TimePoint arrival) {
  wire::ModelInferRequest message;
  RIVULET_RETURN_IF_ERROR(ParseMessage(wire_request_, &message));
  wire_request_.Clear();
  const auto request = std::make_shared<StreamedInfer>(service_, shared_from_this());
  {
    MutexLock lock(&mutex_);
    requests_.insert(request);
  }
  if (!request->Open(message, context_, arrival)) return absl::OkStatus();
  if (context_.IsCancelled()) {
    request->Refuse(absl::CancelledError("cancelled by the client"));
  } else if (MayRun(request)) {
    request->Run();
  }
  return absl::OkStatus();
}

// False: it waits for another of its sequence.
bool StreamInferReactor::MayRun(const std::shared_ptr<StreamedInfer>& request) {
  if (request->session().empty()) return true;
  MutexLock lock(&mutex_);
  const auto [sequence, first] = sequences_.try_emplace(request->session());
  if (!first) sequence->second.push_back(request);
  return first;
}

// On a worker, since tokenizing is slow.
void StreamInferReactor::RunOnPool(const std::shared_ptr<StreamedInfer>& request) {
  if (service_.pool.Run([request] { request->Run(); })) return;
  request->Refuse(TooManyCalls());
}

void StreamInferReactor::ReadOn() {
  {
    MutexLock lock(&mutex_);
    pauses_ = requests_.size() + writes_.size() >= kMostRequests;
    if (pauses_ || ends_) return;
  }
  StartRead(&wire_request_);
}

bool StreamInferReactor::Resumes() {
  if (!pauses_ || ends_ || requests_.size() + writes_.size() >= kMostRequests) return false;
  pauses_ = false;
  return true;
}

void StreamInferReactor::Remove(const std::shared_ptr<StreamedInfer>& request) {
  std::shared_ptr<StreamedInfer> next;
  bool reads = false;
  {
    MutexLock lock(&mutex_);
    ++tasks_;
    requests_.erase(request);
    const auto sequence = sequences_.find(request->session());
    if (sequence != sequences_.end() && sequence->second.empty()) {
      sequences_.erase(sequence);
    } else if (sequence != sequences_.end()) {
      next = std::move(sequence->second.front());
      sequence->second.pop_front();
    }
    reads = Resumes();
  }
  if (next != nullptr) RunOnPool(next);
  if (reads) StartRead(&wire_request_);
  EndTask();
}

void StreamInferReactor::Write(std::list<PendingWrite> write) {
  grpc::ByteBuffer* first = nullptr;
  {
    MutexLock lock(&mutex_);
    writes_.splice(writes_.end(), write);
    if (writes_.size() == 1) first = &writes_.front().bytes;
  }
  if (first != nullptr) StartWrite(first);
}

void StreamInferReactor::OnWriteDone(bool ok) {
  std::shared_ptr<StreamedInfer> from;
  grpc::ByteBuffer* next = nullptr;
  bool reads = false;
  {
    MutexLock lock(&mutex_);
    ++tasks_;
    from = std::move(writes_.front().from);
    writes_.pop_front();
    if (!writes_.empty()) next = &writes_.front().bytes;
    reads = Resumes();
  }
  if (next != nullptr) StartWrite(next);
  if (reads) StartRead(&wire_request_);
  if (from != nullptr) from->OnWriteDone(ok);
  EndTask();
}

void StreamInferReactor::OnCancel() {
  decltype(sequences_) waiting;
  {
    MutexLock lock(&mutex_);
    ++tasks_;
    ends_ = true;
    end_.Update(absl::CancelledError("cancelled by the client"));
    for (const auto& request : requests_) request->Cancel();
    waiting.swap(sequences_);
  }
  for (const auto& [session, queue] : waiting) {
    for (const auto& request : queue) {
      request->Refuse(absl::CancelledError("cancelled by the client"));
    }
  }
  EndTask();
}

void StreamInferReactor::EndWhenIdle(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    ends_ = true;
    end_.Update(status);
  }
  FinishIfIdle();
}

void StreamInferReactor::EndTask() {
  {
    MutexLock lock(&mutex_);
    --tasks_;
  }
  FinishIfIdle();
}

void StreamInferReactor::FinishIfIdle() {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    if (finished_ || !ends_ || tasks_ > 0 || !requests_.empty() || !writes_.empty()) return;
    finished_ = true;
    status = end_;
  }
  FinishCall(*this, context_, status);
}

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StartModelStreamInfer(
    const ServiceContext& service, grpc::CallbackServerContext& context, OpenStreams& streams) {
  const auto reactor = std::make_shared<StreamInferReactor>(service, context, streams);
  reactor->Start();
  return reactor.get();
}

}  // namespace rivulet::kserve
