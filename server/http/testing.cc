// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/http/testing.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <csignal>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"
#include "kernels/base/strings.h"

namespace rivulet {
namespace {

namespace http = boost::beast::http;

constexpr timeval kPatience = {20, 0};

TestResponse Convert(http::response<http::string_body> message) {
  TestResponse response;
  response.status = static_cast<int>(message.result_int());
  for (const auto& field : message) {
    response.headers.push_back({std::string(field.name_string().data(), field.name_string().size()),
                                std::string(field.value().data(), field.value().size())});
  }
  response.body = std::move(message.body());
  return response;
}

}  // namespace

std::string TestResponse::Header(std::string_view name) const {
  for (const HttpHeader& header : headers) {
    if (absl::EqualsIgnoreCase(header.name, ToAbsl(name))) return header.value;
  }
  return "";
}

// OpenSSL's connection is for one thread at a time, and must not be held while the peer is waited
// for.
class TestHttpClient::Tls {
 public:
  Tls(int socket, const TestTls& tls) : socket_(socket), ssl_(NewConnection(tls)) {
    std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
    SSL_set_fd(ssl_.get(), socket);
  }
  bool Connect() {
    return Do([&] { return SSL_connect(ssl_.get()); }) == 1;
  }
  int Write(std::string_view text) {
    return Do([&] { return SSL_write(ssl_.get(), text.data(), static_cast<int>(text.size())); });
  }
  int Read(char* to, size_t most) {
    return Do([&] { return SSL_read(ssl_.get(), to, static_cast<int>(most)); });
  }
  void EndOutput() {
    Do([&] { return SSL_shutdown(ssl_.get()) < 0 ? -1 : 1; });
  }

 private:
  using Connection = std::unique_ptr<SSL, decltype(&SSL_free)>;

  static Connection NewConnection(const TestTls& tls) {
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(
        SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
    const auto use = [](const std::string& pem, auto read, auto take) {
      const std::unique_ptr<BIO, decltype(&BIO_free)> bio(
          BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
      auto* const part = read(bio.get(), nullptr, nullptr, nullptr);
      if (part != nullptr) take(part);
      return part;
    };
    X509_free(use(tls.authority, &PEM_read_bio_X509, [&](X509* authority) {
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), authority);
    }));
    X509_free(use(tls.certificate, &PEM_read_bio_X509,
                  [&](X509* own) { SSL_CTX_use_certificate(context.get(), own); }));
    EVP_PKEY_free(use(tls.key, &PEM_read_bio_PrivateKey,
                      [&](EVP_PKEY* key) { SSL_CTX_use_PrivateKey(context.get(), key); }));
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_mode(context.get(),
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    Connection connection(SSL_new(context.get()), &SSL_free);
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(connection.get()), "127.0.0.1");
    return connection;
  }

  // What `call` of OpenSSL returns once it does not have to wait; not above 0 at the end.
  template <typename Call>
  int Do(Call call) {
    for (;;) {
      int result = 0, error = 0;
      {
        MutexLock lock(&mutex_);
        ERR_clear_error();
        result = call();
        error = SSL_get_error(ssl_.get(), result);
      }
      if (result > 0) return result;
      if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return -1;
      const bool reads = error == SSL_ERROR_WANT_READ;
      pollfd wait = {socket_, static_cast<int16_t>(reads ? POLLIN : POLLOUT), 0};
      if (poll(&wait, 1, static_cast<int>(kPatience.tv_sec) * 1000) <= 0) return -1;
    }
  }

  const int socket_;
  Mutex mutex_;
  const Connection ssl_;
};

TestHttpClient::TestHttpClient(const std::string& address, const TestTls* tls)
    : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
  const size_t colon = address.rfind(':');
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  bool usable = connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
  if (usable && tls != nullptr) {
    tls_ = std::make_unique<Tls>(socket_, *tls);
    usable = tls_->Connect();
  }
  if (!usable) close(std::exchange(socket_, -1));
}

TestHttpClient::TestHttpClient(TestHttpClient&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      tls_(std::move(other.tls_)),
      received_(std::move(other.received_)) {}

TestHttpClient& TestHttpClient::operator=(TestHttpClient&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(tls_, other.tls_);
  std::swap(received_, other.received_);
  return *this;
}

TestHttpClient::~TestHttpClient() {
  if (socket_ >= 0) close(socket_);
}

bool TestHttpClient::Send(std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent =
        tls_ != nullptr ? tls_->Write(text) : send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0) return false;
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void TestHttpClient::HalfClose() {
  tls_ != nullptr ? tls_->EndOutput() : static_cast<void>(shutdown(socket_, SHUT_WR));
}

void TestHttpClient::SetReceiveBuffer(int bytes) {
  setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

std::string TestHttpClient::Receive() {
  if (!received_.empty()) return std::exchange(received_, {});
  char piece[16384];
  const ssize_t got =
      tls_ != nullptr ? tls_->Read(piece, sizeof(piece)) : recv(socket_, piece, sizeof(piece), 0);
  return got <= 0 ? std::string() : std::string(piece, static_cast<size_t>(got));
}

std::string TestHttpClient::ReceiveAll() {
  std::string text;
  for (std::string piece; !(piece = Receive()).empty();) text += piece;
  return text;
}

TestResponse TestHttpClient::ReadResponse(bool to_head) {
  http::response_parser<http::string_body> parser;
  parser.body_limit(std::numeric_limits<uint64_t>::max());
  parser.eager(true);
  parser.skip(to_head);
  std::string input;
  while (!parser.is_done()) {
    const std::string piece = Receive();
    boost::system::error_code error;
    if (piece.empty()) {
      if (!parser.is_header_done()) return {};
      parser.put_eof(error);
      if (error) return {};
      break;
    }
    input += piece;
    for (size_t used = 1; used > 0 && !input.empty() && !parser.is_done();) {
      used = parser.put(boost::asio::buffer(input), error);
      input.erase(0, used);
      if (error && error != http::error::need_more) return {};
    }
  }
  received_ = std::move(input);
  if (parser.get().result_int() / 100 == 1) return ReadResponse(to_head);
  return Convert(parser.release());
}

TestResponse TestHttpClient::Request(const std::string& method, const std::string& path,
                                     const std::string& body,
                                     const std::vector<HttpHeader>& headers) {
  std::string text = absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: localhost\r\n");
  for (const HttpHeader& header : headers) {
    absl::StrAppend(&text, header.name, ": ", header.value, "\r\n");
  }
  if (!body.empty()) absl::StrAppend(&text, "Content-Length: ", body.size(), "\r\n");
  if (!Send(absl::StrCat(text, "\r\n", body)) && body.empty()) return {};
  return ReadResponse(method == "HEAD");
}

TestResponse HttpGetOnce(const std::string& address, const std::string& path) {
  return TestHttpClient(address).Get(path);
}

std::string Gunzip(const std::string& packed) {
  z_stream stream = {};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) return "";
  std::string text(packed.size() * 100 + 1024, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  const bool whole = inflate(&stream, Z_FINISH) == Z_STREAM_END;
  text.resize(whole ? stream.total_out : 0);
  inflateEnd(&stream);
  return text;
}

}  // namespace rivulet
