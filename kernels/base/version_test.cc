// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/version.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rivulet {
namespace {

TEST(VersionTest, NamesTheReleaseAndTheCommit) {
  EXPECT_THAT(std::string(Version()), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(std::string(Commit()), testing::MatchesRegex("unknown|[0-9a-f]+(-dirty)?"));
}

}  // namespace
}  // namespace rivulet
