// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One stream of the Chat method: a series of turns, each of which can be cancelled without ending
// the stream. Client::OpenChat creates it.
//
//   std::unique_ptr<rivulet::ChatStream> chat = client.OpenChat();
//   absl::Status status = chat->Turn(request, [](const auto& message) {
//     std::cout << message.text() << std::flush;
//     return true;
//   });
//   ... more turns; a turn without session_id continues the session of the previous one ...
//   status = chat->Close();
//
// It does not reopen itself: a failed turn ends the stream, and a new one is needed. A session that
// the failed turn named stays on the server.
//
// Threading: one thread at a time may call Turn and Close; any thread may call Cancel, also while
// Turn runs. The Client must outlive the stream.
#ifndef RIVULET_CLIENT_CHAT_STREAM_H_
#define RIVULET_CLIENT_CHAT_STREAM_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "rivulet/v1/inference.pb.h"

namespace rivulet {

class ChatStream {
 public:
  // Ends the stream and a running turn at once, unless Close was called.
  ~ChatStream();
  ChatStream(const ChatStream&) = delete;
  ChatStream& operator=(const ChatStream&) = delete;

  // Sends the turn and calls `on_message` on this thread for each of its messages until it ends.
  // OK: the turn has finished for the finish_reason of its last message (which may be
  // cancellation), and another may follow. Otherwise the stream has ended with this status,
  // messages that arrived before remain valid, and every later Turn returns the same status. If
  // `on_message` returns false, the turn is cancelled as by Cancel, and `on_message` is not called
  // again for it.
  absl::Status Turn(const v1::GenerateRequest& request,
                    const std::function<bool(const v1::GenerateResponse&)>& on_message);

  // Asks the server to end the running turn; Turn returns when it has ended. Does nothing if no
  // turn runs. If the server does not respond, CallOptions::cancellation ends the whole stream.
  void Cancel();

  // Ends the turns: waits for the server to end the stream and returns its status. After a failed
  // turn, returns that turn's status.
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
