// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/chat/conversation.h"

#include <memory>
#include <thread>
#include <utility>

#include "client/cli/chat/command.h"
#include "client/cli/sessions.h"
#include "kernels/base/status.h"

namespace rivulet::cli {
namespace {

// Stands for the end of a text that this program has not seen: as if it ended within a word.
constexpr const char* kUnknownText = "x";

void AddMessage(v1::GenerateRequest& turn, const char* role, const std::string& content) {
  v1::Message* const message = turn.mutable_messages()->add_messages();
  message->set_role(role);
  message->set_content(content);
}

}  // namespace

// The times of a turn and what its last message says.
class Conversation::Measurement {
 public:
  void Add(const v1::GenerateResponse& message) {
    any_ = true;
    if (message.seed() != 0) numbers_.seed = message.seed();
    if (message.rewritten_tokens() != 0) numbers_.rewritten_tokens = message.rewritten_tokens();
    if (message.token_ids_size() > 0) AddTokens(message.token_ids_size());
    if (message.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) return;
    numbers_.finish_reason = message.finish_reason();
    numbers_.matched_stop = message.matched_stop();
    numbers_.usage = message.usage();
    if (message.has_cache()) numbers_.cache = message.cache();
  }

  // Whether the server has answered, so that the turn has begun.
  bool any() const { return any_; }

  TurnNumbers Numbers() const {
    TurnNumbers numbers = numbers_;
    if (tokens_ == 0) return numbers;
    numbers.first_token_seconds = Seconds(first_ - started_);
    const double decoding = Seconds(last_ - first_);
    const bool measurable = tokens_ > first_count_ && decoding >= kShortestRated;
    numbers.tokens_per_second =
        measurable ? (tokens_ - first_count_) / decoding : tokens_ / Seconds(last_ - started_);
    return numbers;
  }

 private:
  // The network delivers tokens in bursts, so a rate over less than this would be meaningless.
  static constexpr double kShortestRated = 0.005;

  static double Seconds(Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  }

  // Tokens that came with the first one are not counted in the rate.
  void AddTokens(int count) {
    last_ = Clock::now();
    if (tokens_ == 0) first_ = last_;
    if (tokens_ == 0) first_count_ = count;
    tokens_ += count;
  }

  const Clock::time_point started_ = Clock::now();
  Clock::time_point first_, last_;
  bool any_ = false;
  int tokens_ = 0;
  int first_count_ = 0;
  TurnNumbers numbers_;
};

Conversation::Conversation(Client& client, v1::GenerateRequest request, bool has_chat_template,
                           std::string system)
    : client_(client),
      request_(std::move(request)),
      sends_messages_(has_chat_template),
      system_(std::move(system)) {}

void Conversation::StartNew(const std::string& name) {
  id_.clear();
  name_ = name;
}

absl::Status Conversation::SetName(const std::string& name, const CallOptions& options) {
  if (!id_.empty()) {
    v1::UpdateSessionRequest request;
    request.set_id(id_);
    request.set_name(name);
    RIVULET_RETURN_IF_ERROR(client_.UpdateSession(request, options).status());
    unnamed_.erase(id_);
  }
  name_ = name;
  return absl::OkStatus();
}

absl::Status Conversation::Switch(const std::string& key, const CallOptions& options) {
  RIVULET_ASSIGN_OR_RETURN(const v1::Session session,
                           FindSession(client_, key, SessionKey::kIdNameOrStart, options));
  id_ = session.id();
  name_ = session.name();
  if (session.position() > 0) endings_.emplace(id_, kUnknownText);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Conversation::Undo(const CallOptions& options) {
  RIVULET_ASSIGN_OR_RETURN(const v1::Session session, Describe(options));
  v1::RewindSessionRequest request;
  request.set_id(id_);
  bool found = false;
  for (const uint64_t kept : session.kept_positions()) {
    if (kept >= session.position()) break;
    request.set_position(kept);
    found = true;
  }
  if (!found) {
    return absl::FailedPreconditionError("the server keeps no earlier turn of this session");
  }
  RIVULET_RETURN_IF_ERROR(client_.RewindSession(request, options).status());
  endings_.erase(id_);
  if (request.position() > 0) endings_.emplace(id_, kUnknownText);
  return request.position();
}

absl::Status Conversation::Fork(const std::string& name, const CallOptions& options) {
  RIVULET_RETURN_IF_ERROR(Describe(options).status());
  v1::ForkSessionRequest request;
  request.set_id(id_);
  request.set_name(name);
  RIVULET_ASSIGN_OR_RETURN(const v1::Session fork, client_.ForkSession(request, options));
  const auto ending = endings_.find(id_);
  if (ending != endings_.end()) endings_.emplace(fork.id(), ending->second);
  id_ = fork.id();
  name_ = name;
  if (name_.empty()) unnamed_.insert(id_);
  return absl::OkStatus();
}

absl::Status Conversation::EnsureSession(const CallOptions& options) {
  if (!id_.empty()) return absl::OkStatus();
  v1::CreateSessionRequest request;
  request.set_name(name_);
  RIVULET_ASSIGN_OR_RETURN(const v1::Session session, client_.CreateSession(request, options));
  id_ = session.id();
  if (name_.empty()) unnamed_.insert(id_);
  return absl::OkStatus();
}

v1::GenerateRequest Conversation::MakeTurn(const std::string& line) const {
  v1::GenerateRequest turn = request_;
  turn.set_session_id(id_);
  const auto ending = endings_.find(id_);
  const bool first = ending == endings_.end();
  if (!sends_messages_) {
    turn.set_prompt(JoinText(first ? "" : ending->second, line));
    return turn;
  }
  turn.mutable_messages()->set_special_tokens_in_messages(turn.special_tokens());
  turn.clear_special_tokens();
  if (first && !system_.empty()) AddMessage(turn, "system", system_);
  AddMessage(turn, "user", line);
  if (thinking_.has_value()) turn.mutable_messages()->set_enable_thinking(*thinking_);
  return turn;
}

absl::Status Conversation::Say(const std::string& line, const CallOptions& options,
                               const std::function<bool(const std::string&)>& on_text) {
  last_turn_ = {};
  RIVULET_RETURN_IF_ERROR(EnsureSession(options));
  const std::unique_ptr<ChatStream> stream = client_.OpenChat(options);
  SetRunning(stream.get());
  absl::Status status = RunTurn(*stream, MakeTurn(line), on_text);
  SetRunning(nullptr);
  if (absl::IsNotFound(status)) {
    endings_.erase(id_);
    unnamed_.erase(id_);
    id_.clear();
  }
  RIVULET_RETURN_IF_ERROR(status);
  // The turn is complete whether or not the stream closes well. Each turn has its own stream: one
  // that waited for the user would delay a server's drain, and could break unnoticed.
  (void)stream->Close();
  return absl::OkStatus();
}

absl::Status Conversation::RunTurn(ChatStream& stream, const v1::GenerateRequest& turn,
                                   const std::function<bool(const std::string&)>& on_text) {
  Measurement measurement;
  std::string text = turn.prompt();
  starts_thinking_ = false;
  absl::Status status = stream.Turn(turn, [&](const v1::GenerateResponse& message) {
    if (cancel_requested()) stream.Cancel();
    measurement.Add(message);
    starts_thinking_ = starts_thinking_ || message.starts_thinking();
    text += message.text();
    return on_text(message.text());
  });
  last_turn_ = measurement.Numbers();
  if (!status.ok() && !measurement.any()) return status;
  // Text after an end-of-text token begins anew, as after a newline.
  const bool ended = last_turn_.finish_reason == v1::FINISH_REASON_EOS;
  std::string& ending = endings_[id_];
  if (!text.empty()) ending = text.substr(text.size() - 1);
  if (ended) ending.assign(1, '\n');
  return status;
}

void Conversation::SetRunning(ChatStream* stream) {
  MutexLock lock(&mutex_);
  running_ = stream;
  cancel_requested_ = false;
}

bool Conversation::cancel_requested() const {
  MutexLock lock(&mutex_);
  return cancel_requested_;
}

bool Conversation::CancelTurn() {
  MutexLock lock(&mutex_);
  if (running_ == nullptr) return false;
  // Also for a turn that is about to be sent, which Cancel cannot reach yet.
  cancel_requested_ = true;
  running_->Cancel();
  return true;
}

absl::StatusOr<v1::Session> Conversation::Describe(const CallOptions& options) {
  if (id_.empty()) return absl::FailedPreconditionError("the session is empty: it has no line yet");
  return client_.GetSession(id_, options);
}

void Conversation::DeleteUnnamed(const CallOptions& options) {
  constexpr int kPatience = 20;  // in all
  int waits = 0;
  for (const std::string& id : unnamed_) {
    absl::Status status = client_.DeleteSession(id, options);
    // A turn that was abandoned may still run on the server.
    for (; absl::IsAborted(status) && waits < kPatience; ++waits) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      status = client_.DeleteSession(id, options);
    }
    // The server eventually drops a session that cannot be deleted.
    if (absl::IsUnavailable(status)) break;
  }
  unnamed_.clear();
}

}  // namespace rivulet::cli
