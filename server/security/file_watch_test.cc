// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/security/file_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "kernels/base/test_directory.h"

namespace rivulet {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

class FileWatchTest : public testing::Test {
 protected:
  void Write(const std::string& name) { std::ofstream(directory_ + "/" + name) << "text"; }
  auto Start() {
    return FileWatch::Start({directory_ + "/watched"}, [this] { ++told_; });
  }

  const std::string directory_ = TestDirectory();
  std::atomic<int> told_{0};
};

TEST_F(FileWatchTest, TellsOfChangesInShortSuccessionOnce) {
  const auto watch = Start();
  ASSERT_TRUE(watch.ok());
  for (int i = 0; i < 3; ++i) Write("watched");
  const auto limit = Clock::now() + std::chrono::seconds(20);
  while (told_ == 0 && Clock::now() < limit) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(told_, 1);
}

// Once a change was told when nothing had changed in the directory for a tenth of a second, so that
// a revoked token could stay valid beside a file that is written again and again.
TEST_F(FileWatchTest, TellsAlsoWhileOtherFilesChange) {
  const auto watch = Start();
  ASSERT_TRUE(watch.ok());
  const auto limit = Clock::now() + std::chrono::seconds(20);
  while (told_ == 0 && Clock::now() < limit) {
    Write("other");
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_GE(told_, 1);
}

}  // namespace
}  // namespace rivulet
