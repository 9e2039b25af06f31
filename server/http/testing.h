// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A blocking HTTP client for tests, which can also send what and when it likes. IPv4 and numeric
// addresses only. Failures show as a status of 0. Threading: one thread at a time, but one may Send
// while another receives.
#ifndef RIVULET_SERVER_HTTP_TESTING_H_
#define RIVULET_SERVER_HTTP_TESTING_H_

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http_message.h"

namespace rivulet {

struct TestResponse {
  int status = 0;  // 0: none, or not a whole one
  std::vector<HttpHeader> headers;
  std::string body;  // without chunks' headers

  // Empty if there is none.
  std::string Header(std::string_view name) const;
};

// How a client speaks TLS. It checks that the server is 127.0.0.1.
struct TestTls {
  std::string authority;              // PEM: who must have signed the server's certificate
  std::string certificate, key = "";  // PEM: its own; empty: none
};

class TestHttpClient {
 public:
  // HOST:PORT, or a port of 127.0.0.1. Connects at once. Without `tls`, in plain text.
  explicit TestHttpClient(const std::string& address, const TestTls* tls = nullptr);
  explicit TestHttpClient(int port, const TestTls* tls = nullptr)
      : TestHttpClient("127.0.0.1:" + std::to_string(port), tls) {}
  TestHttpClient(TestHttpClient&& other) noexcept;
  TestHttpClient& operator=(TestHttpClient&& other) noexcept;
  ~TestHttpClient();

  // False if there is no connection, or TLS has refused it.
  bool connected() const { return socket_ >= 0; }
  // False once the server has closed the connection.
  bool Send(std::string_view text);
  void HalfClose();
  void SetReceiveBuffer(int bytes);
  // What comes next, at least a byte; empty at the end of the connection, or when nothing came for
  // the time limit (20 s).
  std::string Receive();
  // All up to the end of the connection.
  std::string ReceiveAll();
  // The next response. Informational ones (100 Continue) are skipped.
  TestResponse ReadResponse(bool to_head = false);

  TestResponse Request(const std::string& method, const std::string& path,
                       const std::string& body = "", const std::vector<HttpHeader>& headers = {});
  TestResponse Get(const std::string& path, const std::vector<HttpHeader>& headers = {}) {
    return Request("GET", path, "", headers);
  }

  int descriptor() const { return socket_; }

 private:
  class Tls;
  int socket_ = -1;
  std::unique_ptr<Tls> tls_;  // null: plain text
  std::string received_;      // behind the last response
};

// One request on a connection of its own.
TestResponse HttpGetOnce(const std::string& address, const std::string& path);

// Undoes gzip; empty if it is not.
std::string Gunzip(const std::string& packed);

}  // namespace rivulet

#endif  // RIVULET_SERVER_HTTP_TESTING_H_
