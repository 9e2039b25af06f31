// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The certificate that the server shows, its key, and who may connect (mutual TLS): read from PEM
// files, checked, and read again when they change. Both ports use the same one.
//
// A rotation writes two files, one after the other, so for a moment they may not belong together.
// Such a pair is refused and the earlier one stays, until a Reload finds one that fits.
//
// It does not check whether a client's certificate is on a revocation list.
//
// Threading: any thread.
#ifndef RIVULET_SERVER_SECURITY_TLS_IDENTITY_H_
#define RIVULET_SERVER_SECURITY_TLS_IDENTITY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"

struct ssl_ctx_st;

namespace rivulet {

struct TlsPaths {
  std::string certificate;  // chain, PEM, the server's own first; empty: no TLS
  std::string key;          // PEM, without a passphrase
  std::string client_ca;    // PEM; clients must show a certificate that it signed; empty: need not
};

// What was read, checked. Immutable.
struct TlsMaterial {
  std::string certificate, key, client_ca;  // PEM
  int64_t expires_unix = 0;                 // of the server's own certificate, in seconds
  // For OpenSSL: TLS 1.2 or later, HTTP/1.1 by ALPN.
  std::shared_ptr<ssl_ctx_st> context;
};

class TlsIdentity {
 public:
  // INVALID_ARGUMENT or NOT_FOUND names the file and what is wrong with it.
  static absl::StatusOr<std::unique_ptr<TlsIdentity>> FromFiles(TlsPaths paths);

  const TlsPaths& paths() const { return paths_; }
  std::shared_ptr<const TlsMaterial> current() const;
  // For new connections; those that there are keep what they have. After a failure the earlier
  // files count.
  absl::Status Reload();

 private:
  explicit TlsIdentity(TlsPaths paths) : paths_(std::move(paths)) {}

  const TlsPaths paths_;
  mutable Mutex mutex_;
  std::shared_ptr<const TlsMaterial> current_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SECURITY_TLS_IDENTITY_H_
