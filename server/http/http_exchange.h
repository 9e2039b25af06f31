// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One request and its response, as a handler sees them. A handler is called on the I/O thread,
// which all connections share, so it must not block: what takes longer than a scrape is handed to
// another thread, which keeps the exchange.
//
// The response is one Respond, or BeginStream, any number of Writes and EndStream. A stream has at
// most one Write in flight: the next follows the `done` of the one before, so a client that does
// not read holds up its own stream and nothing else. An exchange that is destroyed without a whole
// response cuts its connection.
//
// Threading: WhenGone on the I/O thread, before the handler returns; the rest on any thread, one
// call at a time, and without waiting for the client. What is called after the client has gone or
// the server has stopped has no effect, but `done` of a Write is called, or destroyed uncalled once
// the server has stopped.
#ifndef RIVULET_SERVER_HTTP_HTTP_EXCHANGE_H_
#define RIVULET_SERVER_HTTP_HTTP_EXCHANGE_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "server/http/http_message.h"

namespace rivulet {

class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // Constant after the handler has returned; the handler may take the body out of it.
  HttpRequest& request() { return request_; }

  // `gone` is called once, on the I/O thread, if the connection ends before the response does.
  // `stalled`: since the client took no byte of it for HttpLimits::write_time. The `done` of a
  // write that fails for the same reason comes afterwards.
  virtual void WhenGone(std::function<void(bool stalled)> gone) = 0;

  virtual void Respond(HttpResponse response) = 0;

  // The body of `head` is not used.
  virtual void BeginStream(HttpResponse head) = 0;
  // `done` is called on the I/O thread: true once the kernel has taken the bytes, false if the
  // client is gone. Without bytes, also before BeginStream: `done` just comes on the I/O thread.
  virtual void Write(std::string bytes, std::function<void(bool)> done) = 0;
  virtual void EndStream() = 0;

  // Cuts the connection, and the response with it.
  virtual void Cut() = 0;

 protected:
  explicit HttpExchange(HttpRequest request) : request_(std::move(request)) {}

 private:
  HttpRequest request_;
};

using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

}  // namespace rivulet

#endif  // RIVULET_SERVER_HTTP_HTTP_EXCHANGE_H_
