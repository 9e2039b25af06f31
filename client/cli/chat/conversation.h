// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The conversation of `rivulet chat`: which session is current, how a line becomes a turn, and
// which sessions to delete at the end. It does no terminal input or output.
//
// A session is created on the server with its first line. DeleteUnnamed deletes sessions that were
// created here without a name; named and older sessions stay.
//
// Threading: one thread, except CancelTurn.
#ifndef RIVULET_CLIENT_CLI_CHAT_CONVERSATION_H_
#define RIVULET_CLIENT_CLI_CHAT_CONVERSATION_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "client/client.h"
#include "kernels/base/mutex.h"

namespace rivulet::cli {

struct TurnNumbers {
  v1::Usage usage;
  std::optional<v1::CacheReport> cache;                            // if it was asked for
  v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;  // UNSPECIFIED: it failed
  std::string matched_stop;
  uint64_t seed = 0;
  uint64_t rewritten_tokens = 0;  // that the session held before its template rewrote earlier turns
  double first_token_seconds = 0;
  // From the first token to the last; where they came within 5 ms, from the request to the last.
  double tokens_per_second = 0;
};

class Conversation {
 public:
  // `request` has everything of a turn except input and session. A model with a chat template gets
  // messages, beginning with `system` unless it is empty; any other model continues text.
  Conversation(Client& client, v1::GenerateRequest request, bool has_chat_template,
               std::string system);

  // Continues text from now on, as for a model without a chat template; `system` is not sent. For
  // servers that do not apply templates and answer messages with UNIMPLEMENTED.
  void FallBackToText() { sends_messages_ = false; }
  bool sends_messages() const { return sends_messages_; }

  // What every turn with messages says about enable_thinking.
  void SetThinking(std::optional<bool> thinking) { thinking_ = thinking; }

  // Starts a session, which is created with its first line. An empty name means none.
  void StartNew(const std::string& name);

  // Names the session, now or when it is created, so that it is kept. A failure changes nothing.
  // `name` is not empty.
  absl::Status SetName(const std::string& name, const CallOptions& options);

  // Continues the session with this id or name, or the only one whose id begins with it. A failure
  // changes nothing.
  absl::Status Switch(const std::string& key, const CallOptions& options);

  // Takes back the last turn that the server has kept, and returns the position that is left.
  // FAILED_PRECONDITION if there is none; nothing has changed then.
  absl::StatusOr<uint64_t> Undo(const CallOptions& options);

  // Continues in a fork of the session, with this name or none. FAILED_PRECONDITION before the
  // first line. A failure changes nothing.
  absl::Status Fork(const std::string& name, const CallOptions& options);

  // One turn. With an empty line, a model without a chat template simply continues. Passes the
  // answer's text to `on_text` as it arrives; if that returns false, the turn is cancelled. On
  // NOT_FOUND the server has dropped the session, and the current one is now new, with the same
  // name. After other failures the session is as the server left it.
  absl::Status Say(const std::string& line, const CallOptions& options,
                   const std::function<bool(const std::string&)>& on_text);

  // Asks the server to end the running turn. False if there is none. Any thread.
  bool CancelTurn();

  // The server's description of the session. FAILED_PRECONDITION before the first line.
  absl::StatusOr<v1::Session> Describe(const CallOptions& options);

  // Waits at most a second for their running turns to end.
  void DeleteUnnamed(const CallOptions& options);

  const std::string& id() const { return id_; }  // empty before the first line
  const std::string& name() const { return name_; }
  bool begun() const { return endings_.count(id_) > 0; }  // the session has had a turn
  const TurnNumbers& last_turn() const { return last_turn_; }
  // Whether the text of the turn that runs begins within a <think>.
  bool starts_thinking() const { return starts_thinking_; }

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
  std::optional<bool> thinking_;

  std::string id_;
  std::string name_;
  // The end of each session's text as far as it is known here, for JoinText.
  std::map<std::string, std::string> endings_;
  std::set<std::string> unnamed_;  // created here
  TurnNumbers last_turn_;
  bool starts_thinking_ = false;

  mutable Mutex mutex_;
  ChatStream* running_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool cancel_requested_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_CHAT_CONVERSATION_H_
