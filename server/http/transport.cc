// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/http/transport.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <limits>
#include <utility>

namespace rivulet {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using Progress = Transport::Progress;

bool IsBlocked(const error_code& error) {
  return error == asio::error::would_block || error == asio::error::interrupted;
}

bool EndSocketOutput(tcp::socket& socket) {
  error_code error;
  socket.shutdown(tcp::socket::shutdown_send, error);
  return !error;
}

class PlainTransport final : public Transport {
 public:
  explicit PlainTransport(tcp::socket& socket) : socket_(socket) {}

  Result Read(char* to, size_t most) override {
    error_code error;
    const size_t bytes = socket_.read_some(asio::buffer(to, most), error);
    if (!error) return {Progress::kDone, bytes};
    if (IsBlocked(error)) return {Progress::kBlocked};
    return {error == asio::error::eof ? Progress::kEnd : Progress::kFailed};
  }

  Result Write(const char* from, size_t bytes) override {
    error_code error;
    const size_t written = socket_.write_some(asio::buffer(from, bytes), error);
    if (!error) return {Progress::kDone, written};
    return {IsBlocked(error) ? Progress::kBlocked : Progress::kFailed, 0, tcp::socket::wait_write};
  }

  bool holds_input() const override { return false; }
  bool EndOutput() override { return EndSocketOutput(socket_); }

 private:
  tcp::socket& socket_;
};

class TlsTransport final : public Transport {
 public:
  TlsTransport(tcp::socket& socket, std::shared_ptr<SSL_CTX> context)
      : socket_(socket), context_(std::move(context)), ssl_(SSL_new(context_.get()), &SSL_free) {
    if (ssl_ == nullptr) return;
    SSL_set_accept_state(ssl_.get());
    if (SSL_set_fd(ssl_.get(), socket_.native_handle()) != 1) ssl_ = nullptr;
  }
  bool valid() const { return ssl_ != nullptr; }

  Result Read(char* to, size_t most) override {
    ERR_clear_error();
    return ResultOf(SSL_read(ssl_.get(), to, Length(most)));
  }

  Result Write(const char* from, size_t bytes) override {
    ERR_clear_error();
    return ResultOf(SSL_write(ssl_.get(), from, Length(bytes)));
  }

  bool holds_input() const override { return SSL_has_pending(ssl_.get()) == 1; }

  // The peer's answer is not waited for.
  bool EndOutput() override {
    ERR_clear_error();
    if (SSL_is_init_finished(ssl_.get()) != 1 || SSL_shutdown(ssl_.get()) < 0) return false;
    return EndSocketOutput(socket_);
  }

  PeerNames peer_names() const override {
    const X509* const certificate = SSL_get0_peer_certificate(ssl_.get());
    if (certificate == nullptr || SSL_get_verify_result(ssl_.get()) != X509_V_OK) return {};
    return NamesOfCertificate(*certificate);
  }

 private:
  static int Length(size_t bytes) {
    return static_cast<int>(std::min<size_t>(bytes, std::numeric_limits<int>::max()));
  }

  // Of SSL_read or SSL_write, which has just returned `result`.
  Result ResultOf(int result) {
    if (result > 0) return {Progress::kDone, static_cast<size_t>(result)};
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        return {Progress::kBlocked, 0, tcp::socket::wait_read};
      case SSL_ERROR_WANT_WRITE:
        return {Progress::kBlocked, 0, tcp::socket::wait_write};
      case SSL_ERROR_ZERO_RETURN:
        return {Progress::kEnd};
      default:
        return {Progress::kFailed};
    }
  }

  tcp::socket& socket_;
  const std::shared_ptr<SSL_CTX> context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
};

}  // namespace

std::unique_ptr<Transport> MakePlainTransport(tcp::socket& socket) {
  return std::make_unique<PlainTransport>(socket);
}

std::unique_ptr<Transport> MakeTlsTransport(tcp::socket& socket, std::shared_ptr<SSL_CTX> context) {
  auto transport = std::make_unique<TlsTransport>(socket, std::move(context));
  if (!transport->valid()) return nullptr;
  return transport;
}

}  // namespace rivulet
