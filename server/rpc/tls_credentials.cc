// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/rpc/tls_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <string>

namespace rivulet {
namespace {

grpc_ssl_server_certificate_config* ConfigOf(const TlsMaterial& material) {
  const grpc_ssl_pem_key_cert_pair pair = {material.key.c_str(), material.certificate.c_str()};
  // gRPC wants some here even when it asks clients for no certificate; then nothing looks at them.
  const std::string& clients =
      material.client_ca.empty() ? material.certificate : material.client_ca;
  return grpc_ssl_server_certificate_config_create(clients.c_str(), &pair, 1);
}

class Credentials final : public grpc::ServerCredentials {
 public:
  explicit Credentials(const TlsIdentity& identity) : identity_(identity) {
    const auto clients = identity.paths().client_ca.empty()
                             ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                             : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(clients, &Fetch, this));
  }
  ~Credentials() override { grpc_server_credentials_release(credentials_); }

  // Tokens are looked at by the methods, so that they work without TLS, too.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // gRPC calls it, one call at a time, when the server starts and for each connection.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto& credentials = *static_cast<Credentials*>(self);
    auto current = credentials.identity_.current();
    if (current == credentials.given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    *config = ConfigOf(*current);
    credentials.given_ = std::move(current);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const TlsIdentity& identity_;
  std::shared_ptr<const TlsMaterial> given_;
  grpc_server_credentials* credentials_ = nullptr;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> TlsServerCredentials(const TlsIdentity& identity) {
  return std::make_shared<Credentials>(identity);
}

}  // namespace rivulet
