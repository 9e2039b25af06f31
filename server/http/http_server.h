// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The HTTP port: GET /metrics, /healthz (200 while the process runs and can serve), /readyz (200
// while it takes new work, else 503) and /loglevel, which PUT changes. It serves nothing else and
// has no authentication: keep it inside the cluster. A connection is closed after its answer. A
// slow client is cut off after 2 s, and after 0.1 s while others wait for one of the eight threads,
// so that slow clients do not delay the liveness probe.
#ifndef RIVULET_SERVER_HTTP_HTTP_SERVER_H_
#define RIVULET_SERVER_HTTP_HTTP_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace rivulet {

// Called on the HTTP server's threads, several at once.
struct HttpHandlers {
  std::function<std::string()> metrics_text;
  std::function<bool()> alive;  // false: only a restart helps
  std::function<bool()> ready;
};

class HttpServer {
 public:
  // Binds and serves on threads of its own. Port 0: any free port (port() says which). Fails with
  // UNAVAILABLE, naming the address, when it cannot bind: no port is ever shared with another
  // process.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& host, int port,
                                                           HttpHandlers handlers);
  ~HttpServer();  // stops; a request that is being answered is finished first
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_HTTP_HTTP_SERVER_H_
