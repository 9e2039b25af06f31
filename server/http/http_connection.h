// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One connection of the HTTP port, as cpp-httplib reads and writes it. The library's own stream has
// a timeout for each read, so a client that sends one byte a second would occupy a thread for
// hours; this one has a deadline for the whole connection. It is not an HTTP parser.
//
// Threading: one thread a connection. Ownership: closes the socket.
#ifndef RIVULET_SERVER_HTTP_HTTP_CONNECTION_H_
#define RIVULET_SERVER_HTTP_HTTP_CONNECTION_H_

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

#include "httplib.h"

namespace rivulet {

class HttpConnection : public httplib::Stream {
 public:
  // For all of a connection: scrapes and probes are answered within milliseconds.
  static constexpr std::chrono::milliseconds kPatience{2000};

  // `patience` is called before each wait and returns the age at which the connection must not wait
  // for its client any more: kPatience, or less while others need this thread. At zero, a request
  // that has already arrived is still answered.
  HttpConnection(int socket, std::function<std::chrono::milliseconds()> patience)
      : socket_(socket), patience_(std::move(patience)) {}
  ~HttpConnection() override;

  // Reads up to the empty line after the headers, and hides a Range header: cpp-httplib matches it
  // with std::regex, which recurses for each character and overflows small stacks; answering with
  // the whole page is allowed. False when the client is too slow, gone, or sends more than
  // kLargestHead; there is no answer then.
  bool ReadHead();

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* data, size_t size) override;
  ssize_t write(const char* data, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  bool WaitFor(short events) const;
  ssize_t Receive(char* data, size_t size);

  const int socket_;
  const std::function<std::chrono::milliseconds()> patience_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::string head_;     // and what came with it of the body
  size_t consumed_ = 0;  // of head_, by read()
  size_t received_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_HTTP_HTTP_CONNECTION_H_
