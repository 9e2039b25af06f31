// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The files of --tokens and --tls-*: opened at the start, and read again when they change. What a
// changed file gets wrong is logged, and the earlier contents count until it is right.
//
// Threading: construction and destruction on one thread; the rest on any.
#ifndef RIVULET_SERVER_ACCESS_CONTROL_H_
#define RIVULET_SERVER_ACCESS_CONTROL_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "server/metrics/metrics.h"
#include "server/options.h"
#include "server/security/authenticator.h"
#include "server/security/file_watch.h"
#include "server/security/tls_identity.h"

namespace rivulet {

class AccessControl {
 public:
  // `metrics` outlives it. INVALID_ARGUMENT or NOT_FOUND names the flag's file.
  static absl::StatusOr<std::unique_ptr<AccessControl>> Open(const ServerOptions& options,
                                                             Metrics& metrics);

  const Authenticator& authenticator() const { return *authenticator_; }
  void OnTenants(Authenticator::TellTenants tell) { authenticator_->OnTenants(std::move(tell)); }
  const TlsIdentity* tls() const { return tls_.get(); }  // null: no TLS

 private:
  explicit AccessControl(Metrics& metrics) : metrics_(metrics) {}
  absl::Status OpenFiles(const ServerOptions& options);
  void Reload();
  void ShowExpiry();

  Metrics& metrics_;
  std::unique_ptr<Authenticator> authenticator_;
  std::unique_ptr<TlsIdentity> tls_;
  std::unique_ptr<FileWatch> watch_;  // the last: its thread uses the others
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ACCESS_CONTROL_H_
