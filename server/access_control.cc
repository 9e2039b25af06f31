// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/access_control.h"

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/log/log.h"

namespace rivulet {
namespace {

std::vector<std::string> FilesOf(const ServerOptions& options) {
  std::vector<std::string> files;
  for (const std::string& file :
       {options.tokens, options.tls.certificate, options.tls.key, options.tls.client_ca}) {
    if (!file.empty()) files.push_back(file);
  }
  return files;
}

void LogReload(const char* what, const absl::Status& status) {
  if (status.ok()) return;
  LogWarning("file_not_reloaded", {{"what", what}, {"error", std::string(status.message())}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<AccessControl>> AccessControl::Open(const ServerOptions& options,
                                                                   Metrics& metrics) {
  std::unique_ptr<AccessControl> access(new AccessControl(metrics));
  RIVULET_RETURN_IF_ERROR(access->OpenFiles(options));
  access->ShowExpiry();
  const std::vector<std::string> files = FilesOf(options);
  if (files.empty()) return access;
  RIVULET_ASSIGN_OR_RETURN(access->watch_,
                           FileWatch::Start(files, [access = access.get()] { access->Reload(); }));
  return access;
}

absl::Status AccessControl::OpenFiles(const ServerOptions& options) {
  if (options.tokens.empty()) {
    authenticator_ = std::make_unique<Authenticator>();
  } else {
    RIVULET_ASSIGN_OR_RETURN(authenticator_, Authenticator::FromFile(options.tokens));
    if (authenticator_->knows_certificates() && options.tls.client_ca.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--tokens ", options.tokens,
                       ": it has certificates; give --tls-client-ca, so that clients show theirs"));
    }
  }
  if (options.tls.certificate.empty()) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(tls_, TlsIdentity::FromFiles(options.tls));
  return absl::OkStatus();
}

void AccessControl::Reload() {
  try {
    LogReload("tokens", authenticator_->Reload());
    if (tls_ == nullptr) return;
    const auto before = tls_->current();
    LogReload("tls", tls_->Reload());
    ShowExpiry();
    if (tls_->current() == before) return;
    LogInfo("tls_reloaded", {{"expires_unix", tls_->current()->expires_unix}});
  } catch (const std::exception& error) {  // no memory
    LogWarning("file_not_reloaded", {{"error", error.what()}});
  }
}

void AccessControl::ShowExpiry() {
  if (tls_ != nullptr) metrics_.tls_certificate_expires.Set(tls_->current()->expires_unix);
}

}  // namespace rivulet
