// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The conversation that `rivulet chat` holds: which session is the current one, how a line becomes
// a turn of it, and which sessions are this program's own to delete. It prints and reads nothing.
//
// A session is made on the server with its first line, so an empty one costs nothing. Sessions that
// were made here without a name are deleted by DeleteUnnamed; named ones, and those that were there
// before, stay.
//
// Threading: one thread, but for CancelTurn.
#ifndef RIVULET_CLIENT_CLI_CHAT_CONVERSATION_H_
#define RIVULET_CLIENT_CLI_CHAT_CONVERSATION_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "client/client.h"
#include "kernels/base/mutex.h"

namespace rivulet::cli {

// What a turn cost.
struct TurnNumbers {
  v1::Usage usage;
  v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;  // it failed
  std::string matched_stop;
  uint64_t seed = 0;
  double first_token_seconds = 0;
  // From the first token to the last; where they came within 5 ms, from the request to the last.
  double tokens_per_second = 0;
};

class Conversation {
 public:
  // `request` has everything of a turn but input and session. A model with a chat template gets
  // messages, the first of a session after `system` if that is not empty; any other continues text.
  Conversation(Client& client, v1::GenerateRequest request, bool has_chat_template,
               std::string system);

  // Continues text from now on, as a model without chat template does; `system` is not sent. For a
  // server that answers messages with UNIMPLEMENTED, since it applies no templates. False if it
  // does so already.
  bool FallBackToText();
  bool sends_messages() const { return sends_messages_; }

  // An empty session, made with its first line. An empty name: none.
  void StartNew(const std::string& name);

  // The session has the name, or will have it when it is made, and is kept. After a failure it is
  // as it was. `name` is not empty.
  absl::Status SetName(const std::string& name, const CallOptions& options);

  // Goes on with the session of this id, of this name, or whose id alone begins with it. After a
  // failure the current one is as it was.
  absl::Status Switch(const std::string& key, const CallOptions& options);

  // One turn. An empty line has a model without chat template just go on. The texts of the
  // answer go to `on_text` as they come; false from it cancels the turn. NOT_FOUND: the server has
  // dropped the session, and the current one is now a new one of the same name; after other
  // failures it is as the server left it.
  absl::Status Say(const std::string& line, const CallOptions& options,
                   const std::function<bool(const std::string&)>& on_text);

  // Asks the server to end the running turn. False if there is none. Any thread.
  bool CancelTurn();

  // Of the server. FAILED_PRECONDITION before the first line.
  absl::StatusOr<v1::Session> Describe(const CallOptions& options);

  // Waits a second at most for a turn of theirs to end.
  void DeleteUnnamed(const CallOptions& options);

  const std::string& id() const { return id_; }  // empty before the first line
  const std::string& name() const { return name_; }
  const TurnNumbers& last_turn() const { return last_turn_; }

 private:
  using Clock = std::chrono::steady_clock;
  class Measurement;

  absl::Status EnsureSession(const CallOptions& options);
  v1::GenerateRequest MakeTurn(const std::string& line) const;
  absl::Status RunTurn(ChatStream& stream, const v1::GenerateRequest& turn,
                       const std::function<bool(const std::string&)>& on_text);
  void SetRunning(ChatStream* stream);
  bool cancel_requested() const;

  Client& client_;
  const v1::GenerateRequest request_;
  bool sends_messages_;
  const std::string system_;

  std::string id_;
  std::string name_;
  // The end of each session's text, as far as it was seen here, for JoinText.
  std::map<std::string, std::string> endings_;
  std::set<std::string> unnamed_;  // made here
  TurnNumbers last_turn_;

  mutable Mutex mutex_;
  ChatStream* running_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool cancel_requested_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_CHAT_CONVERSATION_H_
