// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/console/console.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/console/console_files.h"
#include "server/http/compression.h"

namespace rivulet {
namespace {

constexpr char kPage[] = "index.html";
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const char* TypeOf(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "application/octet-stream";
}

// Whether If-None-Match names this version. Weak and strong tags compare alike (RFC 9110).
bool HasVersion(const HttpRequest& request, std::string_view etag) {
  const std::string* const known = request.Find("If-None-Match");
  if (known == nullptr) return false;
  return *known == "*" || known->find(etag) != std::string::npos;
}

HttpResponse ResponseWith(const ConsoleFile& file, const HttpRequest& request) {
  HttpResponse response;
  // Weak, since it is the same for the packed bytes.
  response.headers = {{"ETag", "W/" + std::string(file.etag)},
                      {"Cache-Control", "no-cache"},  // kept, but asked for each time
                      {"Content-Security-Policy", kPolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Cross-Origin-Resource-Policy", "same-origin"}};
  if (HasVersion(request, file.etag)) {
    response.status = 304;
    return response;
  }
  response.content_type = TypeOf(file.name);
  response.body = std::string(file.bytes);
  CompressFor(request, response);
  return response;
}

}  // namespace

std::vector<HttpRoute> ConsoleRoutes() {
  std::vector<HttpRoute> routes;
  // Open to all: the page asks for a token, and its calls send it.
  for (const ConsoleFile& file : ConsoleFiles()) {
    const std::string path = file.name == kPage ? "/" : "/console/" + std::string(file.name);
    routes.push_back({"GET", path, 0,
                      [&file](const std::shared_ptr<HttpExchange>& exchange) {
                        exchange->Respond(ResponseWith(file, exchange->request()));
                      },
                      std::nullopt});
  }
  return routes;
}

}  // namespace rivulet
