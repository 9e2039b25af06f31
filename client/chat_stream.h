// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One stream of the Chat method: many turns after each other, each of which may be cancelled
// without ending the stream. Client::OpenChat makes it.
//
//   std::unique_ptr<rivulet::ChatStream> chat = client.OpenChat();
//   absl::Status status = chat->Turn(request, [](const auto& message) {
//     std::cout << message.text() << std::flush;
//     return true;
//   });
//   ... more turns; a turn without session_id continues the session of the one before ...
//   status = chat->Close();
//
// It does not open itself again: after a turn has failed the stream has ended, and a new one is
// needed. The named session of the failed turn stays on the server.
//
// Threading: Turn and Close belong to one thread at a time; Cancel may be called from any, also
// while Turn runs. The Client must outlive the stream.
#ifndef RIVULET_CLIENT_CHAT_STREAM_H_
#define RIVULET_CLIENT_CHAT_STREAM_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "rivulet/v1/inference.pb.h"

namespace rivulet {

class ChatStream {
 public:
  // Ends the stream at once, a running turn with it, unless Close was called.
  ~ChatStream();
  ChatStream(const ChatStream&) = delete;
  ChatStream& operator=(const ChatStream&) = delete;

  // Sends the turn and calls `on_message` on this thread for each of its messages, to its end.
  // OK: the turn has finished, as the finish_reason of the last message says (a cancelled turn is
  // one of them), and another may follow. Else the stream has ended with this status, the messages
  // that came before it stand, and every later Turn returns the status too. Returning false from
  // `on_message` cancels the turn, as Cancel does; it is not called again for this turn.
  absl::Status Turn(const v1::GenerateRequest& request,
                    const std::function<bool(const v1::GenerateResponse&)>& on_message);

  // Asks the server to end the running turn; Turn returns when it has. Nothing happens when none
  // runs. A server that does not answer is left by CallOptions::cancellation, which ends the whole
  // stream.
  void Cancel();

  // No more turns: waits for the server to end the stream, and returns its status. After a failed
  // turn: that status again.
  absl::Status Close();

 private:
  friend class Client;
  struct Call;  // hides gRPC's headers
  explicit ChatStream(std::unique_ptr<Call> call);

  absl::Status ReadTurn(const std::function<bool(const v1::GenerateResponse&)>& on_message);
  absl::Status Finish();

  std::unique_ptr<Call> call_;
};

}  // namespace rivulet

#endif  // RIVULET_CLIENT_CHAT_STREAM_H_
