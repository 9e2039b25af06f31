// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/security/peer_names.h"

#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string_view>

#include "absl/strings/ascii.h"

namespace rivulet {
namespace {

void FreeNames(GENERAL_NAMES* names) { GENERAL_NAMES_free(names); }

void Add(const char* kind, std::string text, PeerNames& names) {
  if (!text.empty() && text.find('\0') == std::string::npos) names.push_back(kind + text);
}

std::string TextOf(const ASN1_STRING* text) {
  return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                     static_cast<size_t>(ASN1_STRING_length(text)));
}

// The last common name is the most specific one.
void AddCommonName(const X509& certificate, PeerNames& names) {
  const X509_NAME* const subject = X509_get_subject_name(&certificate);
  int last = -1;
  for (int next = -1; (next = X509_NAME_get_index_by_NID(subject, NID_commonName, last)) >= 0;) {
    last = next;
  }
  if (last < 0) return;
  unsigned char* utf8 = nullptr;
  const ASN1_STRING* const text = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, last));
  const int bytes = ASN1_STRING_to_UTF8(&utf8, text);
  if (bytes < 0) return;
  Add("cn:", std::string(reinterpret_cast<const char*>(utf8), static_cast<size_t>(bytes)), names);
  OPENSSL_free(utf8);
}

}  // namespace

PeerNames NamesOfCertificate(const X509& certificate) {
  PeerNames names, hosts;
  const std::unique_ptr<GENERAL_NAMES, decltype(&FreeNames)> alternatives(
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)),
      &FreeNames);
  const int count = alternatives == nullptr ? 0 : sk_GENERAL_NAME_num(alternatives.get());
  for (int i = 0; i < count; ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(alternatives.get(), i);
    if (name->type == GEN_URI) Add("uri:", TextOf(name->d.uniformResourceIdentifier), names);
    if (name->type == GEN_DNS) {
      Add("dns:", absl::AsciiStrToLower(TextOf(name->d.dNSName)), hosts);
    }
  }
  names.insert(names.end(), hosts.begin(), hosts.end());
  AddCommonName(certificate, names);
  return names;
}

}  // namespace rivulet
