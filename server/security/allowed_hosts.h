// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The names that a browser may have for a server on loopback, in the header Host. A site can let
// its own name point to 127.0.0.1 (DNS rebinding): to the browser, its page then is a page of the
// server on this machine. It cannot do so with "localhost" or with an address.
//
// It does not tell who sent a request: a program sends any Host that it likes.
//
// Threading: any thread; immutable.
#ifndef RIVULET_SERVER_SECURITY_ALLOWED_HOSTS_H_
#define RIVULET_SERVER_SECURITY_ALLOWED_HOSTS_H_

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace rivulet {

class AllowedHosts {
 public:
  // Every name.
  AllowedHosts() = default;
  // localhost and what ends in .localhost, addresses, and these names (any case, without a port).
  explicit AllowedHosts(const std::vector<std::string>& names);

  // `host`: the value of the header, with or without a port.
  bool Allows(std::string_view host) const;

 private:
  bool any_ = true;
  std::set<std::string> names_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SECURITY_ALLOWED_HOSTS_H_
