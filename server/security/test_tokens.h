// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_SECURITY_TEST_TOKENS_H_
#define RIVULET_SERVER_SECURITY_TEST_TOKENS_H_

#include <string>

#include "absl/strings/escaping.h"
#include "server/security/token_file.h"

namespace rivulet {

// What a token file has of a token. For tests only.
inline std::string TokenHash(const std::string& token) {
  const Sha256Digest digest = Sha256(token);
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_SECURITY_TEST_TOKENS_H_
