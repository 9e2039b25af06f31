// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The HTTP port: HTTP/1.1 and 1.0 with keep-alive, pipelining and streamed responses, on one I/O
// thread for all connections. Which paths there are is up to its owner
// (operations.h, server/openai), and so is who may use them (HttpRoutes::admit). With a TlsIdentity
// it speaks TLS and nothing else. It knows no HTTP/2.
//
// What a client does cannot hold up another: handlers do not block, and a client that is slow,
// silent or gone costs its own connection alone (HttpLimits). Over HttpLimits::connections, the
// connection that has waited longest for its client is closed, so that a crowd of silent clients
// does not keep out the liveness probe.
#ifndef RIVULET_SERVER_HTTP_HTTP_SERVER_H_
#define RIVULET_SERVER_HTTP_HTTP_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/http/http_exchange.h"
#include "server/http/http_limits.h"
#include "server/http/http_message.h"
#include "server/http/http_route.h"
#include "server/metrics/metrics.h"
#include "server/security/tls_identity.h"

namespace rivulet {

class HttpServer {
 public:
  // Binds and serves on a thread of its own. Port 0: any free port (port() says which). Fails with
  // UNAVAILABLE, naming the address, when it cannot bind: no port is ever shared with another
  // process. `metrics` and `tls` outlive the server; a connection has the identity that was the
  // current one when it began. Null: no TLS.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& host, int port,
                                                           HttpRoutes routes, Metrics& metrics,
                                                           const HttpLimits& limits = {},
                                                           const TlsIdentity* tls = nullptr);
  // Stops. Responses that are being written get HttpLimits::stop_time.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;

  // Any thread but a handler's. When it returns, no handler of the earlier routes runs or will run;
  // exchanges that they were given go on.
  void SetRoutes(HttpRoutes routes);
  // Closes all connections whose response is not whole yet: their exchanges are told that the
  // client has gone. Any thread but a handler's.
  void CutExchanges();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_HTTP_HTTP_SERVER_H_
