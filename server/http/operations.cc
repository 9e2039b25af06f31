// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/http/operations.h"

#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/http/compression.h"
#include "server/log/log.h"

namespace rivulet {
namespace {

constexpr size_t kLargestLogLevel = 1024;  // bytes of a body

HttpResponse Text(int status, std::string text) {
  return {status, "text/plain", {}, std::move(text)};
}

HttpResponse MetricsPage(const HttpRequest& request, std::string text) {
  HttpResponse response = {200, "text/plain; version=0.0.4; charset=utf-8", {}, std::move(text)};
  response.headers.push_back({"Accept-Ranges", "none"});
  CompressFor(request, response);
  return response;
}

HttpResponse PutLogLevel(const HttpRequest& request) {
  const absl::string_view level = absl::StripAsciiWhitespace(request.body);
  if (ChangeLogLevel({level.data(), level.size()}, request.client)) {
    return Text(200, std::string(LogLevel()) + "\n");
  }
  return Text(400, absl::StrCat("'", level,
                                "' is not a log level; send debug, info, warning, error or off\n"));
}

template <typename Respond>
HttpRoute Route(const char* method, const char* path, size_t most_body_bytes,
                std::optional<Scope> scope, Respond respond) {
  return {method, path, most_body_bytes,
          [respond = std::move(respond)](const std::shared_ptr<HttpExchange>& exchange) {
            exchange->Respond(respond(exchange->request()));
          },
          scope};
}

}  // namespace

std::vector<HttpRoute> OperationsRoutes(OperationsHandlers handlers) {
  const auto shared = std::make_shared<OperationsHandlers>(std::move(handlers));
  return {
      Route("GET", "/metrics", 0, Scope::kMetrics,
            [shared](const HttpRequest& request) {
              return MetricsPage(request, shared->metrics_text());
            }),
      Route("GET", "/healthz", 0, std::nullopt,
            [shared](const HttpRequest&) {
              return shared->alive() ? Text(200, "ok\n")
                                     : Text(503, "no longer able to serve: restart\n");
            }),
      Route("GET", "/readyz", 0, std::nullopt,
            [shared](const HttpRequest&) {
              return shared->ready() ? Text(200, "ready\n") : Text(503, "not ready\n");
            }),
      Route("GET", "/loglevel", 0, Scope::kAdmin,
            [](const HttpRequest&) { return Text(200, std::string(LogLevel()) + "\n"); }),
      Route("PUT", "/loglevel", kLargestLogLevel, Scope::kAdmin, PutLogLevel),
  };
}

}  // namespace rivulet
