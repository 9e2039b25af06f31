// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Which paths the HTTP port has, what answers them and who may use them. Plain values; handlers are
// called on the I/O thread (http_exchange.h).
#ifndef RIVULET_SERVER_HTTP_HTTP_ROUTE_H_
#define RIVULET_SERVER_HTTP_HTTP_ROUTE_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "server/http/http_exchange.h"
#include "server/http/http_message.h"
#include "server/security/caller.h"

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
  // to respond instead. Null: every client may use all routes.
  std::function<std::optional<HttpResponse>(HttpRequest& request, Scope scope)> admit = nullptr;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_HTTP_HTTP_ROUTE_H_
