// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/http/http_connection.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace rivulet {
namespace {

using std::chrono::milliseconds;

// How often a thread that waits for its client checks whether others wait for a thread.
constexpr milliseconds kLook{20};
// Prometheus and kubelet send less than 1 KiB.
constexpr size_t kLargestHead = 8192;
constexpr size_t kLargestRequest = 16384;

constexpr absl::string_view kEndOfHead = "\r\n\r\n";
constexpr absl::string_view kRange = "range:";

// In place, so that no length changes: no header is called "-ange".
void HideRange(std::string& head) {
  for (size_t at = 0; (at = head.find('\n', at)) != std::string::npos; ++at) {
    if (absl::StartsWithIgnoreCase(absl::string_view(head).substr(at + 1), kRange)) {
      head[at + 1] = '-';
    }
  }
}

}  // namespace

HttpConnection::~HttpConnection() {
  shutdown(socket_, SHUT_RDWR);
  close(socket_);
}

bool HttpConnection::ReadHead() {
  char piece[2048];
  while (head_.find(kEndOfHead.data()) == std::string::npos) {
    const ssize_t got = head_.size() < kLargestHead ? Receive(piece, sizeof(piece)) : -1;
    if (got <= 0) return false;
    head_.append(piece, static_cast<size_t>(got));
  }
  HideRange(head_);
  return true;
}

bool HttpConnection::WaitFor(short events) const {
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

ssize_t HttpConnection::Receive(char* data, size_t size) {
  if (received_ >= kLargestRequest || !WaitFor(POLLIN)) return -1;
  const ssize_t got = recv(socket_, data, size, MSG_DONTWAIT);
  if (got > 0) received_ += static_cast<size_t>(got);
  return got;
}

bool HttpConnection::is_readable() const { return consumed_ < head_.size() || WaitFor(POLLIN); }

bool HttpConnection::is_writable() const { return WaitFor(POLLOUT); }

ssize_t HttpConnection::read(char* data, size_t size) {
  if (consumed_ == head_.size()) return Receive(data, size);
  const size_t taken = head_.copy(data, size, consumed_);
  consumed_ += taken;
  return static_cast<ssize_t>(taken);
}

ssize_t HttpConnection::write(const char* data, size_t size) {
  if (!WaitFor(POLLOUT)) return -1;
  return send(socket_, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void HttpConnection::get_remote_ip_and_port(std::string& ip, int& port) const {
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

// Not used by any route.
void HttpConnection::get_local_ip_and_port(std::string&, int&) const {}

}  // namespace rivulet
