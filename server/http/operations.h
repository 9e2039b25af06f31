// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The paths for those who operate the server: GET /metrics, /healthz (200 while the process runs
// and can serve), /readyz (200 while it takes new work, else 503) and /loglevel, which PUT changes.
// The two probes need no token.
#ifndef RIVULET_SERVER_HTTP_OPERATIONS_H_
#define RIVULET_SERVER_HTTP_OPERATIONS_H_

#include <functional>
#include <string>
#include <vector>

#include "server/http/http_server.h"

namespace rivulet {

// Called on the HTTP server's thread; milliseconds at most.
struct OperationsHandlers {
  std::function<std::string()> metrics_text;
  std::function<bool()> alive;  // false: only a restart helps
  std::function<bool()> ready;
};

std::vector<HttpRoute> OperationsRoutes(OperationsHandlers handlers);

}  // namespace rivulet

#endif  // RIVULET_SERVER_HTTP_OPERATIONS_H_
