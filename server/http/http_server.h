// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The HTTP port: HTTP/1.1 and 1.0 with keep-alive, pipelining and streamed responses, on one I/O
// thread whatever the number of connections. Which paths there are is up to its owner
// (operations.h, server/openai), and so is who may use them (HttpRoute::guard). With a TlsIdentity
// it speaks TLS and nothing else. It knows no HTTP/2.
//
// What a client does cannot hold up another: handlers do not block, and a client that is slow,
// silent or gone costs its own connection alone (HttpLimits). Over HttpLimits::connections, the
// connection that has waited longest for its client is closed, so that a crowd of silent clients
// does not keep out the liveness probe.
#ifndef RIVULET_SERVER_HTTP_HTTP_SERVER_H_
#define RIVULET_SERVER_HTTP_HTTP_SERVER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/http_exchange.h"
#include "server/http/http_limits.h"
#include "server/http/http_message.h"
#include "server/metrics/metrics.h"
#include "server/security/caller.h"
#include "server/security/tls_identity.h"

namespace rivulet {

struct HttpRoute {
  std::string method;  // GET also answers HEAD, without the body; empty: any
  // Exact, or what a path begins with if it ends in / and is not / alone. A * stands for one part
  // of the path, between slashes, that is not empty.
  std::string path;
  size_t most_body_bytes = 0;
  HttpHandler handler;
  // What a caller's token must allow; none: the path is open to all.
  std::optional<Scope> scope = Scope::kGenerate;
};

struct HttpRoutes {
  std::vector<HttpRoute> routes;  // the first that fits counts
  // The response to what no handler sees: unknown paths, requests that are not HTTP, too large or
  // too slow. Null: the text as text/plain.
  std::function<HttpResponse(int status, const std::string& text)> refusal;
  // Called when the head is read, before any of the body: sets the request's caller, or says what
  // to respond instead. Null: anyone may use all routes.
  std::function<std::optional<HttpResponse>(HttpRequest& request, Scope scope)> admit = nullptr;
};

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
