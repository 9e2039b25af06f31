// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/metrics/http_server.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "httplib.h"

namespace rivulet {
namespace {

// A connection holds its thread until it closes, is idle for kKeepAliveSeconds or says nothing for
// kIoSeconds, so a few slow ones must not keep out the probe that decides whether we are alive.
constexpr size_t kThreads = 8;
constexpr time_t kKeepAliveSeconds = 2;
constexpr time_t kIoSeconds = 2;
constexpr size_t kLargestBody = 1024;  // no route takes one

void AddRoutes(httplib::Server& server, const HttpHandlers& handlers) {
  server.Get("/metrics", [&handlers](const httplib::Request&, httplib::Response& response) {
    response.set_content(handlers.metrics_text(), "text/plain; version=0.0.4; charset=utf-8");
  });
  server.Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
    response.set_content("ok\n", "text/plain");
  });
  server.Get("/readyz", [&handlers](const httplib::Request&, httplib::Response& response) {
    const bool ready = handlers.ready();
    response.status = ready ? 200 : 503;
    response.set_content(ready ? "ready\n" : "not ready\n", "text/plain");
  });
}

}  // namespace

struct HttpServer::Impl {
  HttpHandlers handlers;
  httplib::Server server;
  int port = 0;
  std::thread thread;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  impl_->server.stop();
  impl_->thread.join();
}

int HttpServer::port() const { return impl_->port; }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& host, int port,
                                                              HttpHandlers handlers) {
  auto impl = std::make_unique<Impl>();
  impl->handlers = std::move(handlers);
  httplib::Server& server = impl->server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_keep_alive_timeout(kKeepAliveSeconds);
  server.set_read_timeout(kIoSeconds);
  server.set_write_timeout(kIoSeconds);
  server.set_payload_max_length(kLargestBody);
  // httplib's own options include SO_REUSEPORT, which would let two servers share a port silently.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  AddRoutes(server, impl->handlers);
  errno = 0;
  impl->port =
      port != 0 ? (server.bind_to_port(host, port) ? port : -1) : server.bind_to_any_port(host);
  if (impl->port < 0) {
    const char* reason = errno != 0 ? std::strerror(errno) : "the address cannot be used";
    return absl::UnavailableError(absl::StrCat("cannot listen for HTTP on ", host, ":", port, ": ",
                                               reason, "; choose another --http HOST:PORT"));
  }
  impl->thread = std::thread([raw = impl.get()] { raw->server.listen_after_bind(); });
  // stop() before the listener runs would be lost and the destructor would wait for ever.
  while (!impl->server.is_running()) std::this_thread::yield();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

}  // namespace rivulet
