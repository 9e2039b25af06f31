// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/security/allowed_hosts.h"

#include <gtest/gtest.h>

namespace rivulet {
namespace {

TEST(AllowedHostsTest, NamesThatASiteCanPointHereAreRefused) {
  const AllowedHosts hosts({"Workstation.lan", "gpu"});
  for (const char* const host :
       {"localhost", "LOCALHOST:8591", "localhost.:8591", "app.localhost:1", "127.0.0.1",
        "127.0.0.1:8591", "192.168.1.5:80", "[::1]", "[::1]:8591", "workstation.LAN:8591", "gpu"}) {
    EXPECT_TRUE(hosts.Allows(host)) << host;
  }
  for (const char* const host :
       {"evil.test", "evil.test:8591", "localhost.evil.test", "127.0.0.1.evil.test", "notlocalhost",
        "gpu.evil.test", "workstation", "", ":8591", "[evil.test]", "[::1", "127.1", "1.2.3.4.5",
        "localhost@evil.test", "evil.test/localhost", "127.0.0.1 evil.test"}) {
    EXPECT_FALSE(hosts.Allows(host)) << host;
  }
}

TEST(AllowedHostsTest, WithoutAListEveryNameIsAllowed) {
  EXPECT_TRUE(AllowedHosts().Allows("evil.test"));
  EXPECT_TRUE(AllowedHosts().Allows(""));
  EXPECT_FALSE(AllowedHosts(std::vector<std::string>()).Allows("evil.test"));
}

}  // namespace
}  // namespace rivulet
