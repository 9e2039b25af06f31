// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/job.h"

#include "client/cli/commands.h"
#include "client/grpc.h"

namespace rivulet::cli::bench {
namespace {

// Deleting must end even if the server no longer responds.
constexpr std::chrono::milliseconds kDeleteTimeout(5000);

}  // namespace

Job::Job(const JobContext& context, Connection& connection, uint64_t number, bool interfering)
    : context_(context), connection_(connection), number_(number), interfering_(interfering) {}

void Job::Start(TimePoint due, TimePoint now) {
  due_ = due;
  if (context_.options.turns > 0 && !interfering_) {
    CreateSession();
  } else {
    StartTurn(due, now);
  }
}

bool Job::Proceed(bool ok, TimePoint now) {
  switch (state_) {
    case State::kCreating:
      return OnCreated(now);
    case State::kReading:
      if (ok) context_.recorder.OnMessage(record_, message_, now);
      [[fallthrough]];
    case State::kStarting:
      if (ok) {
        Read();
      } else {
        state_ = State::kFinishing;
        stream_->Finish(&grpc_status_, this);
      }
      return true;
    case State::kFinishing:
      return OnTurnEnd(now);
    case State::kDeleting:
      if (!grpc_status_.ok()) context_.recorder.OnSessionError(ToStatus(grpc_status_, *call_));
      return false;
  }
  return false;
}

void Job::CutOff() {
  if (cut_off_ || state_ == State::kDeleting) return;
  cut_off_ = true;
  call_->TryCancel();
}

void Job::NewCall(std::optional<std::chrono::milliseconds> timeout) {
  stream_.reset();  // uses the previous call's memory
  creation_.reset();
  call_.emplace();
  if (timeout) call_->set_deadline(std::chrono::system_clock::now() + *timeout);
}

void Job::CreateSession() {
  state_ = State::kCreating;
  NewCall(Timeout(context_.options.common));
  creation_ = connection_.sessions->AsyncCreateSession(&*call_, v1::CreateSessionRequest(),
                                                       &context_.queue);
  creation_->Finish(&session_, &grpc_status_, this);
}

bool Job::OnCreated(TimePoint now) {
  status_ = ToStatus(grpc_status_, *call_);
  if (status_.ok()) {
    session_id_ = session_.id();
    if (cut_off_) return DeleteSession();
    StartTurn(due_, now);
    return true;
  }
  if (!cut_off_) context_.recorder.OnSessionError(status_);
  return false;
}

v1::GenerateRequest Job::MakeRequest() const {
  if (interfering_) {
    return context_.workload.MakeInterferingRequest(number_, context_.options.interfere_prompt);
  }
  v1::GenerateRequest request = context_.workload.MakeRequest(number_, turn_);
  request.set_session_id(session_id_);
  return request;
}

void Job::StartTurn(TimePoint due, TimePoint now) {
  const v1::GenerateRequest request = MakeRequest();
  record_ = interfering_ ? context_.recorder.StartInterfering(now)
                         : context_.recorder.StartRequest(due, now, turn_, request.max_tokens());
  state_ = State::kStarting;
  NewCall(Timeout(context_.options.common));
  stream_ = connection_.inference->AsyncGenerate(&*call_, request, &context_.queue, this);
}

void Job::Read() {
  state_ = State::kReading;
  stream_->Read(&message_, this);
}

bool Job::OnTurnEnd(TimePoint now) {
  status_ = ToStatus(grpc_status_, *call_);
  const bool cut_off = cut_off_ && absl::IsCancelled(status_);
  context_.recorder.OnEnd(record_, status_, cut_off, now);
  if (session_id_.empty()) return false;
  if (status_.ok() && !cut_off_ && ++turn_ < context_.options.turns) {
    StartTurn(now, now);
    return true;
  }
  return DeleteSession();
}

bool Job::DeleteSession() {
  state_ = State::kDeleting;
  NewCall(kDeleteTimeout);
  v1::DeleteSessionRequest request;
  request.set_id(session_id_);
  deletion_ = connection_.sessions->AsyncDeleteSession(&*call_, request, &context_.queue);
  deletion_->Finish(&deleted_, &grpc_status_, this);
  return true;
}

}  // namespace rivulet::cli::bench
