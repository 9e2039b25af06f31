// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/security/tls_identity.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstddef>
#include <cstring>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/security/read_file.h"

namespace rivulet {
namespace {

constexpr size_t kMostFileBytes = size_t{4} << 20;

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

Bio Open(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
}

// Keys with a passphrase are refused instead of asked about on the terminal.
int NoPassphrase(char*, int, int, void*) { return -1; }

Certificate NextCertificate(BIO* bio) {
  return Certificate(PEM_read_bio_X509(bio, nullptr, &NoPassphrase, nullptr), &X509_free);
}

absl::Status Bad(const std::string& path, const std::string& what) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

absl::Status UseCertificates(const std::string& path, const std::string& pem, SSL_CTX* context) {
  const Bio bio = Open(pem);
  const Certificate own = NextCertificate(bio.get());
  if (own == nullptr) return Bad(path, "it has no certificate in PEM form");
  if (SSL_CTX_use_certificate(context, own.get()) != 1) {
    return Bad(path, "its first certificate cannot be used: its key or its hash is too weak");
  }
  while (const Certificate next = NextCertificate(bio.get())) {
    if (SSL_CTX_add1_chain_cert(context, next.get()) != 1) {
      return Bad(path, "a certificate of the chain cannot be used");
    }
  }
  ERR_clear_error();  // the end of the file
  return absl::OkStatus();
}

absl::Status UseKey(const std::string& path, const std::string& pem, SSL_CTX* context) {
  const Bio bio = Open(pem);
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, &NoPassphrase, nullptr),
                &EVP_PKEY_free);
  if (key == nullptr) return Bad(path, "it has no private key in PEM form without a passphrase");
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1) {
    return Bad(path, "the key does not belong to the certificate");
  }
  return absl::OkStatus();
}

absl::Status UseClientCa(const std::string& path, const std::string& pem, SSL_CTX* context) {
  const Bio bio = Open(pem);
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  int found = 0;
  while (const Certificate next = NextCertificate(bio.get())) {
    const bool added = X509_STORE_add_cert(store, next.get()) == 1;
    if (!added || SSL_CTX_add_client_CA(context, next.get()) != 1) {
      return Bad(path, "one of its certificates cannot be used");
    }
    ++found;
  }
  if (found == 0) return Bad(path, "it has no certificate in PEM form");
  ERR_clear_error();
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return absl::OkStatus();
}

int ChooseProtocol(SSL*, const unsigned char** chosen, unsigned char* chosen_bytes,
                   const unsigned char* offered, unsigned int offered_bytes, void*) {
  static constexpr unsigned char kHttp[] = "\x08http/1.1";
  unsigned char* out = nullptr;
  const int result =
      SSL_select_next_proto(&out, chosen_bytes, kHttp, sizeof(kHttp) - 1, offered, offered_bytes);
  *chosen = out;
  return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

std::shared_ptr<SSL_CTX> NewContext() {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
  if (context == nullptr) return nullptr;
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  // A connection that waits holds no buffers.
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_alpn_select_cb(context.get(), &ChooseProtocol, nullptr);
  constexpr unsigned char kSessionContext[] = "rivulet";
  SSL_CTX_set_session_id_context(context.get(), kSessionContext, sizeof(kSessionContext) - 1);
  return context;
}

int64_t ExpiryOf(SSL_CTX* context) {
  std::tm time = {};
  const X509* const own = SSL_CTX_get0_certificate(context);
  if (own == nullptr || ASN1_TIME_to_tm(X509_get0_notAfter(own), &time) != 1) return 0;
  return timegm(&time);
}

absl::StatusOr<TlsMaterial> Read(const TlsPaths& paths) {
  TlsMaterial material;
  RIVULET_ASSIGN_OR_RETURN(material.certificate, ReadFile(paths.certificate, kMostFileBytes));
  RIVULET_ASSIGN_OR_RETURN(material.key, ReadFile(paths.key, kMostFileBytes));
  material.context = NewContext();
  if (material.context == nullptr) return absl::ResourceExhaustedError("no memory for TLS");
  SSL_CTX* const context = material.context.get();
  RIVULET_RETURN_IF_ERROR(UseCertificates(paths.certificate, material.certificate, context));
  RIVULET_RETURN_IF_ERROR(UseKey(paths.key, material.key, context));
  material.expires_unix = ExpiryOf(context);
  if (paths.client_ca.empty()) return material;
  RIVULET_ASSIGN_OR_RETURN(material.client_ca, ReadFile(paths.client_ca, kMostFileBytes));
  RIVULET_RETURN_IF_ERROR(UseClientCa(paths.client_ca, material.client_ca, context));
  return material;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsIdentity>> TlsIdentity::FromFiles(TlsPaths paths) {
  std::unique_ptr<TlsIdentity> identity(new TlsIdentity(std::move(paths)));
  RIVULET_RETURN_IF_ERROR(identity->Reload());
  return identity;
}

std::shared_ptr<const TlsMaterial> TlsIdentity::current() const {
  MutexLock lock(&mutex_);
  return current_;
}

absl::Status TlsIdentity::Reload() {
  RIVULET_ASSIGN_OR_RETURN(TlsMaterial material, Read(paths_));
  MutexLock lock(&mutex_);
  const bool same = current_ != nullptr && current_->certificate == material.certificate &&
                    current_->key == material.key && current_->client_ca == material.client_ca;
  if (!same) current_ = std::make_shared<const TlsMaterial>(std::move(material));
  return absl::OkStatus();
}

}  // namespace rivulet
