// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/http/http_server.h"

#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <future>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/http/connection.h"
#include "server/log/log.h"

namespace rivulet {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

// After no descriptor was left for a connection.
constexpr std::chrono::milliseconds kAcceptAgain{50};
// In the kernel, of a connection: enough for 10 MB/s over 25 ms. Streams whose client does not read
// stop when it is full.
constexpr int kSendBufferBytes = 256 << 10;

void SetSocketOption(int socket, int level, int name, int value) {
  (void)setsockopt(socket, level, name, &value, sizeof(value));
}

// A client whose machine is gone is noticed after 50 s, as over gRPC.
void SetConnectionOptions(int socket) {
  SetSocketOption(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  SetSocketOption(socket, SOL_SOCKET, SO_SNDBUF, kSendBufferBytes);
  SetSocketOption(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetSocketOption(socket, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  SetSocketOption(socket, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  SetSocketOption(socket, IPPROTO_TCP, TCP_KEEPCNT, 2);
}

// Half of the descriptors are for others: gRPC never accepts again once it has found none.
size_t MostConnections(const HttpLimits& limits) {
  rlimit descriptors;
  if (getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return limits.connections;
  return std::min<size_t>(limits.connections, std::max<rlim_t>(descriptors.rlim_cur / 2, 16));
}

bool Matches(std::string_view pattern, std::string_view path) {
  for (; !pattern.empty(); pattern.remove_prefix(1)) {
    const size_t part = std::min(path.find('/'), path.size());
    const bool fits = pattern[0] == '*' ? part > 0 : path.starts_with(pattern[0]);
    if (!fits) return false;
    path.remove_prefix(pattern[0] == '*' ? part : 1);
  }
  return path.empty();
}

bool Fits(const HttpRoute& route, const HttpRequest& request) {
  const bool prefix = route.path.size() > 1 && route.path.ends_with('/');
  return prefix ? request.path.starts_with(route.path) : Matches(route.path, request.path);
}

bool TakesMethod(const HttpRoute& route, const HttpRequest& request) {
  if (route.method.empty() || route.method == request.method) return true;
  return route.method == "GET" && request.method == "HEAD";
}

}  // namespace

class HttpServer::Impl final : public ConnectionHub {
 public:
  Impl(HttpRoutes routes, Metrics& metrics, const HttpLimits& limits, const TlsIdentity* tls)
      : limits_(limits), metrics_(metrics), tls_(tls), routes_(std::move(routes)) {}

  absl::Status Start(const std::string& host, int port);
  void Stop();
  int port() const { return port_; }
  // Runs `task` on the I/O thread and waits for it.
  void RunOnIo(const std::function<void()>& task);
  void SetRoutes(HttpRoutes routes);
  void CutExchanges();

  const HttpLimits& limits() const override { return limits_; }
  const std::shared_ptr<asio::io_context>& io() const override { return io_; }
  const std::shared_ptr<IoPoster>& poster() const override { return poster_; }
  std::unique_ptr<Transport> MakeTransport(tcp::socket& socket) override {
    if (tls_ == nullptr) return MakePlainTransport(socket);
    return MakeTlsTransport(socket, tls_->current()->context);
  }
  bool TakeBodyBytes(size_t bytes) override;
  void GiveBodyBytes(size_t bytes) override { body_bytes_ -= bytes; }
  Route FindRoute(const HttpRequest& request) override;
  std::optional<HttpResponse> Admit(const HttpRoute& route, HttpRequest& request) override;
  HttpResponse Refusal(int status, const std::string& text) override;
  void CountResponse(int status) override { metrics_.CountHttpResponse(status); }
  void Ended(Connection& connection) override;

 private:
  using Connections = std::unordered_map<Connection*, std::shared_ptr<Connection>>;

  error_code Bind(const tcp::endpoint& endpoint);
  void Accept();
  void OnAccept(const error_code& error, tcp::socket socket);
  void Add(tcp::socket socket);
  bool CloseLongestWaiting();
  void EndAll();
  void Run();

  const HttpLimits limits_;
  Metrics& metrics_;
  const TlsIdentity* const tls_;  // null: none
  const std::shared_ptr<asio::io_context> io_ = std::make_shared<asio::io_context>(1);
  const std::shared_ptr<IoPoster> poster_ = std::make_shared<IoPoster>(*io_);
  tcp::acceptor acceptor_{*io_};
  asio::steady_timer timer_{*io_};
  int port_ = 0;
  // The I/O thread's.
  HttpRoutes routes_;
  Connections connections_;
  size_t body_bytes_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

absl::Status HttpServer::Impl::Start(const std::string& host, int port) {
  const auto fail = [&](const std::string& reason) {
    return absl::UnavailableError(absl::StrCat("cannot listen for HTTP on ", host, ":", port, ": ",
                                               reason, "; choose another --http HOST:PORT"));
  };
  error_code error;
  tcp::resolver resolver(*io_);
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error) return fail(error.message());
  for (const auto& entry : found) {
    error = Bind(entry.endpoint());
    if (!error) break;
  }
  if (error) return fail(error.message());
  port_ = acceptor_.local_endpoint(error).port();
  Accept();
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

// Asio sets no SO_REUSEPORT, which would let two servers share a port silently.
error_code HttpServer::Impl::Bind(const tcp::endpoint& endpoint) {
  error_code error, ignored;
  acceptor_.close(ignored);
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
  return error;
}

void HttpServer::Impl::Run() {
  for (;;) {
    try {
      io_->run();
      return;
    } catch (const std::exception& error) {  // no memory
      LogWarning("http_failed", {{"error", error.what()}});
    }
  }
}

void HttpServer::Impl::Accept() {
  acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
    if (stopping_ || error == asio::error::operation_aborted) return;
    OnAccept(error, std::move(socket));
  });
}

void HttpServer::Impl::OnAccept(const error_code& error, tcp::socket socket) {
  if (!error) {
    try {
      Add(std::move(socket));
    } catch (const std::exception& exception) {
      LogWarning("http_connection_failed", {{"error", exception.what()}});
    }
    return Accept();
  }
  // Most often no descriptor is left.
  metrics_.http_connections_refused.Add();
  LogDebug("http_accept_failed", {{"error", error.message()}});
  CloseLongestWaiting();
  timer_.expires_after(kAcceptAgain);
  timer_.async_wait([this](const error_code& aborted) {
    if (!aborted && !stopping_) Accept();
  });
}

void HttpServer::Impl::Add(tcp::socket socket) {
  SetConnectionOptions(socket.native_handle());
  if (connections_.size() >= MostConnections(limits_) && !CloseLongestWaiting()) {
    metrics_.http_connections_refused.Add();
    return;
  }
  const auto connection = std::make_shared<Connection>(*this, std::move(socket));
  connections_.emplace(connection.get(), connection);
  metrics_.http_connections.Set(static_cast<int64_t>(connections_.size()));
  connection->Start();
}

bool HttpServer::Impl::CloseLongestWaiting() {
  std::shared_ptr<Connection> longest;
  for (const auto& [address, connection] : connections_) {
    if (!connection->waits_for_client()) continue;
    if (longest == nullptr || connection->waits_since() < longest->waits_since()) {
      longest = connection;
    }
  }
  if (longest == nullptr) return false;
  longest->Close();
  return true;
}

void HttpServer::Impl::Ended(Connection& connection) {
  connections_.erase(&connection);
  metrics_.http_connections.Set(static_cast<int64_t>(connections_.size()));
  if (stopping_ && connections_.empty()) io_->stop();
}

bool HttpServer::Impl::TakeBodyBytes(size_t bytes) {
  if (body_bytes_ + bytes > limits_.all_body_bytes) return false;
  body_bytes_ += bytes;
  return true;
}

ConnectionHub::Route HttpServer::Impl::FindRoute(const HttpRequest& request) {
  Route found;
  found.status = 404;
  for (const HttpRoute& route : routes_.routes) {
    if (!Fits(route, request)) continue;
    if (TakesMethod(route, request)) return {&route, 200, ""};
    found.status = 405;
    absl::StrAppend(&found.allow, found.allow.empty() ? "" : ", ", route.method);
  }
  return found;
}

std::optional<HttpResponse> HttpServer::Impl::Admit(const HttpRoute& route, HttpRequest& request) {
  if (routes_.admit == nullptr || !route.scope.has_value()) return std::nullopt;
  return routes_.admit(request, *route.scope);
}

HttpResponse HttpServer::Impl::Refusal(int status, const std::string& text) {
  if (routes_.refusal != nullptr) return routes_.refusal(status, text);
  return {status, "text/plain", {}, text + "\n"};
}

void HttpServer::Impl::RunOnIo(const std::function<void()>& task) {
  std::promise<void> done;
  asio::post(*io_, [&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

void HttpServer::Impl::SetRoutes(HttpRoutes routes) {
  RunOnIo([&] { routes_ = std::move(routes); });
}

void HttpServer::Impl::CutExchanges() {
  RunOnIo([this] {
    const Connections all = connections_;
    for (const auto& [address, connection] : all) {
      if (connection->waits_for_handler()) connection->Close();
    }
  });
}

void HttpServer::Impl::EndAll() {
  stopping_ = true;
  error_code ignored;
  acceptor_.close(ignored);
  const Connections all = connections_;  // those that end take themselves out
  for (const auto& [address, connection] : all) connection->EndSoon();
  if (connections_.empty()) return io_->stop();
  timer_.expires_after(limits_.stop_time);
  timer_.async_wait([this](const error_code&) { io_->stop(); });
}

void HttpServer::Impl::Stop() {
  if (!thread_.joinable()) return;
  asio::post(*io_, [this] { EndAll(); });
  thread_.join();
  poster_->Close();
  const Connections all = std::move(connections_);
  connections_.clear();
  for (const auto& [address, connection] : all) connection->Close();
  timer_.cancel();
  // What is still queued keeps connections, and they keep the queue.
  io_->restart();
  io_->poll();
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() { impl_->Stop(); }

int HttpServer::port() const { return impl_->port(); }
void HttpServer::SetRoutes(HttpRoutes routes) { impl_->SetRoutes(std::move(routes)); }
void HttpServer::CutExchanges() { impl_->CutExchanges(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& host, int port,
                                                              HttpRoutes routes, Metrics& metrics,
                                                              const HttpLimits& limits,
                                                              const TlsIdentity* tls) {
  auto impl = std::make_unique<Impl>(std::move(routes), metrics, limits, tls);
  const absl::Status started = impl->Start(host, port);
  if (!started.ok()) return started;
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

}  // namespace rivulet
