// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_SECURITY_PEER_NAMES_H_
#define RIVULET_SERVER_SECURITY_PEER_NAMES_H_

#include <string>
#include <vector>

struct x509_st;

namespace rivulet {

// What the certificate of a client is for, once the handshake has verified it: its URIs, DNS names
// and common name, in this order, as "uri:spiffe://example.org/search", "dns:search.example.org",
// "cn:search".
using PeerNames = std::vector<std::string>;

// DNS names in lower case. Names with a byte 0 are left out: others may have read them to there.
PeerNames NamesOfCertificate(const x509_st& certificate);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SECURITY_PEER_NAMES_H_
