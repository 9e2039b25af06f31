// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/chat_stream.h"

#include <utility>

#include "client/chat_call.h"

namespace rivulet {

ChatStream::ChatStream(std::unique_ptr<Call> call) : call_(std::move(call)) {}

ChatStream::~ChatStream() {
  if (call_->ended) return;
  call_->running.context()->TryCancel();
  (void)Finish();  // CANCELLED, by ourselves
}

absl::Status ChatStream::Turn(const v1::GenerateRequest& request,
                              const std::function<bool(const v1::GenerateResponse&)>& on_message) {
  if (call_->ended && !call_->ended->ok()) return *call_->ended;
  if (call_->ended)
    return absl::FailedPreconditionError("this chat stream is closed; open another");
  v1::ChatRequest message;
  *message.mutable_turn() = request;
  {
    MutexLock lock(&call_->mutex);
    call_->turn_runs = true;
    // A failed write means that the stream has ended; reading returns the reason.
    (void)call_->stream->Write(message);
  }
  return ReadTurn(on_message);
}

absl::Status ChatStream::ReadTurn(
    const std::function<bool(const v1::GenerateResponse&)>& on_message) {
  v1::GenerateResponse message;
  bool wanted = true;
  while (call_->stream->Read(&message)) {
    if (wanted && !on_message(message)) {
      wanted = false;
      Cancel();
    }
    if (message.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) continue;
    MutexLock lock(&call_->mutex);
    call_->turn_runs = false;
    return absl::OkStatus();
  }
  absl::Status status = Finish();
  if (!status.ok()) return status;
  call_->ended = absl::UnavailableError("the server ended the chat before the turn had finished");
  return *call_->ended;
}

void ChatStream::Cancel() {
  v1::ChatRequest message;
  message.set_cancel(true);
  MutexLock lock(&call_->mutex);
  if (call_->turn_runs) (void)call_->stream->Write(message);
}

absl::Status ChatStream::Close() {
  if (call_->ended) return *call_->ended;
  {
    MutexLock lock(&call_->mutex);
    (void)call_->stream->WritesDone();
  }
  v1::GenerateResponse ignored;
  while (call_->stream->Read(&ignored)) {
  }
  return Finish();
}

absl::Status ChatStream::Finish() {
  {
    MutexLock lock(&call_->mutex);
    call_->turn_runs = false;  // no more writes
  }
  call_->ended = ToStatus(call_->stream->Finish(), *call_->running.context());
  return *call_->ended;
}

}  // namespace rivulet
