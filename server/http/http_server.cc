// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/http/http_server.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "httplib.h"
#include "server/log/log.h"

namespace rivulet {
namespace {

using std::chrono::milliseconds;

// A connection occupies a thread until it is answered.
constexpr size_t kThreads = 8;
// For all of a connection: scrapes and probes are answered within milliseconds.
constexpr milliseconds kPatience{2000};
// While others wait for a thread. A kubelet's probe gives up after 1 s; before that, every earlier
// connection must be done, however many there are.
constexpr milliseconds kPatienceWhileOthersWait{100};
constexpr milliseconds kPatienceWithAll{400};
// How often a thread that waits for its client checks whether others wait for a thread.
constexpr milliseconds kLook{20};
// Prometheus and kubelet send less than 1 KiB.
constexpr size_t kLargestHead = 8192;
constexpr size_t kLargestRequest = 16384;
constexpr size_t kLargestBody = 1024;

// In place, so that no length changes: no header is called "-ange".
void HideRange(std::string& head) {
  for (size_t at = 0; (at = head.find('\n', at)) != std::string::npos; ++at) {
    if (absl::StartsWithIgnoreCase(absl::string_view(head).substr(at + 1), "range:")) {
      head[at + 1] = '-';
    }
  }
}

// One connection, as cpp-httplib reads and writes it. The library's own stream has a timeout for
// each read, so a client that sends one byte a second would occupy a thread for hours; this one has
// a deadline for the whole connection. It is not an HTTP parser. One thread; closes the socket.
class Connection final : public httplib::Stream {
 public:
  // `patience` is called before each wait and returns the age at which the connection must not wait
  // for its client any more: kPatience, or less while others need this thread. At zero, a request
  // that has already arrived is still answered.
  Connection(int socket, std::function<milliseconds()> patience)
      : socket_(socket), patience_(std::move(patience)) {}
  ~Connection() override {
    shutdown(socket_, SHUT_RDWR);
    close(socket_);
  }

  // Reads up to the empty line after the headers, and hides a Range header: cpp-httplib matches it
  // with std::regex, which recurses for each character and overflows small stacks; answering with
  // the whole page is allowed. False when the client is too slow, gone, or sends more than
  // kLargestHead; there is no answer then.
  bool ReadHead() {
    char piece[2048];
    while (head_.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = head_.size() < kLargestHead ? Receive(piece, sizeof(piece)) : -1;
      if (got <= 0) return false;
      head_.append(piece, static_cast<size_t>(got));
    }
    HideRange(head_);
    return true;
  }

  bool is_readable() const override { return consumed_ < head_.size() || WaitFor(POLLIN); }
  bool is_writable() const override { return WaitFor(POLLOUT); }

  ssize_t read(char* data, size_t size) override {
    if (consumed_ == head_.size()) return Receive(data, size);
    const size_t taken = head_.copy(data, size, consumed_);
    consumed_ += taken;
    return static_cast<ssize_t>(taken);
  }

  ssize_t write(const char* data, size_t size) override {
    if (!WaitFor(POLLOUT)) return -1;
    return send(socket_, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    sockaddr_storage address;
    socklen_t length = sizeof(address);
    char host[NI_MAXHOST];
    char service[NI_MAXSERV];
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (getpeername(socket_, generic, &length) != 0) return;
    if (getnameinfo(generic, length, host, sizeof(host), service, sizeof(service),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
      return;
    }
    ip = host;
    port = std::atoi(service);
  }

  void get_local_ip_and_port(std::string&, int&) const override {}  // not used by any route
  socket_t socket() const override { return socket_; }

 private:
  bool WaitFor(short events) const {
    const auto age = [this] { return std::chrono::steady_clock::now() - start_; };
    pollfd descriptor = {socket_, events, 0};
    while (age() < kPatience) {
      const auto left = std::chrono::duration_cast<milliseconds>(patience_() - age());
      const auto look = std::clamp(left, milliseconds(0), kLook);
      if (poll(&descriptor, 1, static_cast<int>(look.count())) > 0) return true;
      if (left <= milliseconds(0)) return false;
    }
    return false;
  }

  ssize_t Receive(char* data, size_t size) {
    if (received_ >= kLargestRequest || !WaitFor(POLLIN)) return -1;
    const ssize_t got = recv(socket_, data, size, MSG_DONTWAIT);
    if (got > 0) received_ += static_cast<size_t>(got);
    return got;
  }

  const int socket_;
  const std::function<milliseconds()> patience_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::string head_;     // and what came with it of the body
  size_t consumed_ = 0;  // of head_, by read()
  size_t received_ = 0;
};

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
    Connection connection(socket, [this] { return Patience(); });
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
    if (waiting <= 0) return kPatience;
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
