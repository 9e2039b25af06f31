// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Certificates for tests, made as they run: no key is in the repository. For tests only.
#ifndef RIVULET_SERVER_SECURITY_TEST_CERTIFICATES_H_
#define RIVULET_SERVER_SECURITY_TEST_CERTIFICATES_H_

#include <cstdint>
#include <string>

namespace rivulet {

struct CertificateAndKey {
  std::string certificate, key;  // PEM
};

struct CertificateRequest {
  std::string name = "localhost";             // common name, and DNS name if it is no authority
  int64_t valid_from = -3600;                 // seconds from now
  int64_t valid_until = 86400;                // likewise
  bool authority = false;                     // may sign others
  const CertificateAndKey* issuer = nullptr;  // null: it signs itself
  std::string uri = "";                       // a further name of one that is no authority
};

// A new one each time, with an EC key (P-256). Valid for localhost, 127.0.0.1 and ::1.
CertificateAndKey MakeCertificate(const CertificateRequest& request);

// Writes a text file, as a test does that rotates it.
void WriteFile(const std::string& path, const std::string& text);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SECURITY_TEST_CERTIFICATES_H_
