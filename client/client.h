// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The C++ client of a Rivulet server. It adds to the generated stub what every caller needs: one
// channel with suitable limits, streaming through a callback, cancellation, deadlines, and errors
// as absl::Status. Requests and responses are the messages of proto/rivulet/v1/inference.proto,
// whose comments document each field.
//
// A server that refuses work temporarily (RESOURCE_EXHAUSTED, ABORTED) may say when to retry:
// RetryAfter(status).
//
// It deliberately does not retry (a retried generation is a new one) and keeps no state between
// calls; conversations are sessions on the server.
//
//   rivulet::Client client("localhost:8590");
//   rivulet::v1::GenerateRequest request;
//   request.set_prompt("Once upon a time");
//   absl::Status status = client.Generate(request, {}, [](const auto& message) {
//     std::cout << message.text() << std::flush;
//     return true;
//   });
//
// Threading: thread-safe. A callback runs on the thread that called Generate.
#ifndef RIVULET_CLIENT_CLIENT_H_
#define RIVULET_CLIENT_CLIENT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rivulet/v1/inference.pb.h"

namespace rivulet {

// Ends a running call from another thread. One Cancellation serves one call at a time. Once
// cancelled, it ends the running call and every later one. Thread-safe.
class Cancellation {
 public:
  Cancellation();
  ~Cancellation();
  void Cancel();
  // Whether Cancel was called.
  bool cancelled() const;

 private:
  friend class RunningCall;
  struct State;
  std::shared_ptr<State> state_;
};

// How to reach a server that speaks TLS or asks for a token.
struct Access {
  bool tls = false;
  // PEM: who must have signed the server's certificate; empty: whom this machine trusts.
  std::string authorities = "";
  std::string certificate = "", key = "";  // PEM: the client's own, for mutual TLS; empty: none
  std::string token = "";  // sent with every call, without TLS in plain text; empty: none
};

struct CallOptions {
  // The call fails with DEADLINE_EXCEEDED after this long. None: no limit.
  std::optional<std::chrono::milliseconds> timeout;
  // Borrowed; must outlive the call. Null: the call cannot be cancelled.
  Cancellation* cancellation = nullptr;
};

// How long the server asks to wait before a retry, from its trailing metadata retry-after-ms; none
// if it did not say. The status carries it in the payload kRetryAfterPayload, in milliseconds as
// decimal text.
inline constexpr char kRetryAfterPayload[] = "rivulet.retry_after_ms";
std::optional<std::chrono::milliseconds> RetryAfter(const absl::Status& status);

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

class Client {
 public:
  // `address` is HOST:PORT or any gRPC target. Never blocks and never fails: if the server cannot
  // be reached, the first call returns UNAVAILABLE.
  explicit Client(const std::string& address, const Access& access = {});
  ~Client();

  // Calls `on_message` for each message of the stream as it arrives. If it returns false, the call
  // is cancelled and succeeds. Messages that arrived before a failure remain valid.
  absl::Status Generate(const v1::GenerateRequest& request, const CallOptions& options,
                        const std::function<bool(const v1::GenerateResponse&)>& on_message);

  // A stream for turns. Never blocks and never fails; errors are returned by the first turn. The
  // options apply to the whole stream, and their cancellation must outlive it.
  std::unique_ptr<ChatStream> OpenChat(const CallOptions& options = {});

  absl::StatusOr<v1::ScoreResponse> Score(const v1::ScoreRequest& request,
                                          const CallOptions& options = {});
  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request,
                                                const CallOptions& options = {});
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request,
                                                    const CallOptions& options = {});
  absl::StatusOr<v1::Model> GetModel(const CallOptions& options = {});

  // inference.proto documents the fields of v1::Session and the limits of ids and names.
  absl::StatusOr<v1::Session> CreateSession(const v1::CreateSessionRequest& request,
                                            const CallOptions& options = {});
  absl::StatusOr<v1::Session> GetSession(const std::string& id, const CallOptions& options = {});
  // Changes the fields that are set in the request.
  absl::StatusOr<v1::Session> UpdateSession(const v1::UpdateSessionRequest& request,
                                            const CallOptions& options = {});
  absl::StatusOr<v1::Session> ForkSession(const v1::ForkSessionRequest& request,
                                          const CallOptions& options = {});
  absl::StatusOr<v1::Session> RewindSession(const v1::RewindSessionRequest& request,
                                            const CallOptions& options = {});
  absl::Status DeleteSession(const std::string& id, const CallOptions& options = {});
  // One page. The next one begins at the response's next_page_token, which is empty after the last.
  absl::StatusOr<v1::ListSessionsResponse> ListSessions(const v1::ListSessionsRequest& request,
                                                        const CallOptions& options = {});
  // All pages; the timeout applies to each page. The list is not a snapshot: a session that is
  // created or deleted meanwhile may or may not be in it. A failure returns no partial list.
  absl::StatusOr<std::vector<v1::Session>> ListAllSessions(const CallOptions& options = {});

 private:
  struct Connection;  // hides gRPC's headers, which take seconds to compile
  std::unique_ptr<Connection> connection_;
};

}  // namespace rivulet

#endif  // RIVULET_CLIENT_CLIENT_H_
