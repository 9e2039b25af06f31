// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/security/allowed_hosts.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "absl/strings/ascii.h"

namespace rivulet {
namespace {

bool IsAddress(int family, const std::string& text) {
  in6_addr address;  // has room for either
  return inet_pton(family, text.c_str(), &address) == 1;
}

std::string Lower(std::string_view name) {
  if (name.ends_with('.')) name.remove_suffix(1);  // the name's root, which browsers keep
  return absl::AsciiStrToLower(absl::string_view(name.data(), name.size()));
}

}  // namespace

AllowedHosts::AllowedHosts(const std::vector<std::string>& names) : any_(false) {
  for (const std::string& name : names) names_.insert(Lower(name));
}

bool AllowedHosts::Allows(std::string_view host) const {
  if (any_) return true;
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return end != std::string_view::npos &&
           IsAddress(AF_INET6, std::string(host.substr(1, end - 1)));
  }
  const std::string name = Lower(host.substr(0, host.find(':')));
  return name == "localhost" || name.ends_with(".localhost") || IsAddress(AF_INET, name) ||
         names_.contains(name);
}

}  // namespace rivulet
