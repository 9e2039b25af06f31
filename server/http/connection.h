// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One connection of the HTTP port: reads requests, calls their handlers and writes the responses,
// one request at a time. What the client sends meanwhile is read up to HttpLimits::head_bytes and
// answered afterwards (pipelining).
//
// A client that has closed its side may still read (half-closed), or be gone: both look alike until
// something is written. A stream's next write tells. Where a response takes longer to begin, "100
// Continue" is sent, which clients skip: if the client is gone, its machine answers with a reset,
// and the exchange ends.
//
// Threading: everything on the I/O thread; the exchanges it makes post to that. The connection is
// kept by its pending operations and by the hub.
#ifndef RIVULET_SERVER_HTTP_CONNECTION_H_
#define RIVULET_SERVER_HTTP_CONNECTION_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "kernels/base/mutex.h"
#include "server/http/http_exchange.h"
#include "server/http/http_limits.h"
#include "server/http/http_message.h"
#include "server/http/http_route.h"
#include "server/http/request_reader.h"
#include "server/http/transport.h"

namespace rivulet {

// Posts to the I/O thread as long as there is one. Any thread.
class IoPoster {
 public:
  explicit IoPoster(boost::asio::io_context& io) : io_(&io) {}
  // The task is dropped after Close, or when memory is short.
  void Post(std::function<void()> task);
  void Close();

 private:
  Mutex mutex_;
  boost::asio::io_context* io_ ABSL_GUARDED_BY(mutex_);
};

class Connection;

// What a connection knows of its server. On the I/O thread.
class ConnectionHub {
 public:
  virtual ~ConnectionHub() = default;
  virtual const HttpLimits& limits() const = 0;
  virtual const std::shared_ptr<boost::asio::io_context>& io() const = 0;
  virtual const std::shared_ptr<IoPoster>& poster() const = 0;
  // Of a new connection; null if memory is short.
  virtual std::unique_ptr<Transport> MakeTransport(boost::asio::ip::tcp::socket& socket) = 0;
  // Bytes of bodies that are being received: false if there would be too many.
  virtual bool TakeBodyBytes(size_t bytes) = 0;
  virtual void GiveBodyBytes(size_t bytes) = 0;
  // What the request's method and path lead to now.
  struct Route {
    const HttpRoute* route = nullptr;  // null: refused with `status`
    int status = 200;                  // 404, or 405 with the methods that the path has
    std::string allow;
  };
  virtual Route FindRoute(const HttpRequest& request) = 0;
  // Sets the request's caller, or says what to respond instead.
  virtual std::optional<HttpResponse> Admit(const HttpRoute& route, HttpRequest& request) = 0;
  virtual HttpResponse Refusal(int status, const std::string& text) = 0;
  virtual void CountResponse(int status) = 0;
  virtual void Ended(Connection& connection) = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ConnectionHub& hub, boost::asio::ip::tcp::socket socket);
  void Start();

  // Not while a request is being answered.
  bool waits_for_client() const { return phase_ != Phase::kAnswering; }
  // A handler has still to say the rest of a response.
  bool waits_for_handler() const { return phase_ == Phase::kAnswering && !whole_; }
  std::chrono::steady_clock::time_point waits_since() const { return waits_since_; }
  // Ends after the response that is being answered, at once if there is none.
  void EndSoon();
  // `stalled`: the client does not read.
  void Close(bool stalled = false);

 private:
  class Exchange;
  enum class Phase : uint8_t { kReading, kAnswering, kLingering, kClosed };
  enum class Limit : uint8_t { kNone, kHead, kBody, kIdle, kProbe, kWrite, kLinger };

  // Runs `work` as a callback of an operation: what throws closes the connection.
  template <typename Work>
  auto Guarded(Work work);

  // The timer's limit; one that runs already goes on.
  void SetLimit(Limit limit);
  void RestartLimit(Limit limit);
  std::chrono::milliseconds TimeOf(Limit limit) const;
  void OnExpired();

  void WaitReadable();
  void OnReadable();
  bool ReadInput();
  void OnInputEnd();
  void LookForClient();

  // Handles what was read, until more is needed or a handler answers later.
  void Advance();
  bool Step();
  bool OnNeedsMore();
  bool OnHead();
  void Dispatch();
  void Refuse(HttpResponse response);
  bool CountBodyBytes();
  void GiveBodyBytes();

  // The exchange's calls.
  bool IsCurrent(uint64_t exchange) const;
  void Respond(HttpResponse response);
  void BeginStream(const HttpResponse& head);
  void StreamWrite(const std::string& bytes, std::function<void(bool)> done);
  void EndStream();

  void QueueHead(const HttpResponse& response);
  void EndResponse();
  void Flush();
  void TryWrite();
  void OnWritten(size_t bytes);
  void OnAllWritten();
  void Linger();

  ConnectionHub& hub_;
  const std::shared_ptr<boost::asio::io_context> io_;  // an exchange may outlive the server
  boost::asio::ip::tcp::socket socket_;
  std::unique_ptr<Transport> transport_;
  boost::asio::steady_timer timer_;
  RequestReader reader_;
  Phase phase_ = Phase::kReading;
  Limit limit_ = Limit::kNone;
  std::string input_;  // read, not yet used
  std::string client_;
  std::chrono::steady_clock::time_point waits_since_;
  size_t counted_body_bytes_ = 0;
  bool waits_readable_ = false;
  // What the next read needs: under TLS, a read may have to write first.
  boost::asio::socket_base::wait_type read_wait_ = boost::asio::socket_base::wait_read;
  bool input_ended_ = false;
  bool said_continue_ = false;
  bool ends_ = false;  // after the current response

  // Of the response.
  uint64_t exchange_ = 0;  // its number; a late call for an earlier one has another
  std::function<void(bool)> gone_;
  bool keep_alive_ = false;
  int minor_version_ = 1;
  bool without_body_ = false;  // HEAD
  bool has_head_ = false;      // was queued
  bool whole_ = false;         // all of it was queued
  HttpFraming framing_ = HttpFraming::kLength;

  std::string output_;   // being written
  size_t written_ = 0;   // of output_
  std::string pending_;  // written next
  bool writing_ = false;
  std::function<void(bool)> write_done_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_HTTP_CONNECTION_H_
