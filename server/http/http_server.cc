// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/http/http_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "httplib.h"
#include "server/http/http_connection.h"
#include "server/log/log.h"

namespace rivulet {
namespace {

using std::chrono::milliseconds;

// A connection occupies a thread until it is answered (http_connection.h).
constexpr size_t kThreads = 8;
constexpr size_t kLargestBody = 1024;
// While others wait for a thread. A kubelet's probe gives up after 1 s; before that, every earlier
// connection must be done, however many there are.
constexpr milliseconds kPatienceWhileOthersWait{100};
constexpr milliseconds kPatienceWithAll{400};

// Knows how many connections wait for a thread.
class Queue : public httplib::TaskQueue {
 public:
  explicit Queue(std::atomic<int>& waiting) : waiting_(waiting), pool_(kThreads) {}
  void enqueue(std::function<void()> job) override {
    ++waiting_;
    pool_.enqueue([this, job = std::move(job)] {
      --waiting_;
      job();
    });
  }
  void shutdown() override { pool_.shutdown(); }

 private:
  std::atomic<int>& waiting_;
  httplib::ThreadPool pool_;
};

// httplib would decompress a kilobyte into gigabytes, and parse forms; no route needs either.
void TakeBodyAsItIs(httplib::Request& request) {
  request.headers.erase("Content-Encoding");
  request.headers.erase("Content-Type");
}

// One request per connection, so that no thread waits between two.
class Server : public httplib::Server {
 public:
  Server() {
    new_task_queue = [this] { return new Queue(waiting_); };
  }

 private:
  bool process_and_close_socket(socket_t socket) override {
    HttpConnection connection(socket, [this] { return Patience(); });
    bool closed = false;
    try {
      if (!connection.ReadHead()) return false;
      return process_request(connection, /*close_connection=*/true, closed, TakeBodyAsItIs);
    } catch (const std::exception& error) {
      LogWarning("http_request_failed", {{"error", error.what()}});
      return false;
    }
  }

  milliseconds Patience() const {
    if (svr_sock_ == INVALID_SOCKET) return milliseconds(0);  // stopping
    const int waiting = waiting_;
    if (waiting <= 0) return HttpConnection::kPatience;
    return std::min(kPatienceWhileOthersWait,
                    kPatienceWithAll * static_cast<int>(kThreads) / waiting);
  }

  std::atomic<int> waiting_{0};
};

void SetText(httplib::Response& response, int status, const std::string& text) {
  response.status = status;
  response.set_content(text, "text/plain");
}

void PutLogLevel(const httplib::Request& request, httplib::Response& response) {
  const absl::string_view level = absl::StripAsciiWhitespace(request.body);
  if (ChangeLogLevel({level.data(), level.size()}, request.remote_addr)) {
    return SetText(response, 200, std::string(LogLevel()) + "\n");
  }
  SetText(
      response, 400,
      absl::StrCat("'", level, "' is not a log level; send debug, info, warning, error or off\n"));
}

void AddRoutes(httplib::Server& server, const HttpHandlers& handlers) {
  server.Get("/metrics", [&handlers](const httplib::Request&, httplib::Response& response) {
    response.set_content(handlers.metrics_text(), "text/plain; version=0.0.4; charset=utf-8");
  });
  server.Get("/healthz", [&handlers](const httplib::Request&, httplib::Response& response) {
    const bool alive = handlers.alive();
    SetText(response, alive ? 200 : 503, alive ? "ok\n" : "no longer able to serve: restart\n");
  });
  server.Get("/readyz", [&handlers](const httplib::Request&, httplib::Response& response) {
    const bool ready = handlers.ready();
    SetText(response, ready ? 200 : 503, ready ? "ready\n" : "not ready\n");
  });
  server.Get("/loglevel", [](const httplib::Request&, httplib::Response& response) {
    SetText(response, 200, std::string(LogLevel()) + "\n");
  });
  server.Put("/loglevel", PutLogLevel);
}

}  // namespace

struct HttpServer::Impl {
  HttpHandlers handlers;
  Server server;
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
  server.set_payload_max_length(kLargestBody);
  server.set_default_headers({{"Accept-Ranges", "none"}});  // httplib says bytes in answers to HEAD
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
