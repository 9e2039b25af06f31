// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/start_over.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace rivulet {
namespace {

constexpr char kVariable[] = "RIVULET_STARTED_OVER";

class StartOverTest : public testing::Test {
 protected:
  void TearDown() override { unsetenv(kVariable); }

  // What `script` exits with, as the next program image.
  static void Execute(const std::string& script, const StartOver& state) {
    const absl::Status failed = ExecuteAgain("/bin/sh", {"sh", "-c", script}, state);
    std::fprintf(stderr, "%s\n", std::string(failed.message()).c_str());
    std::_Exit(99);
  }

  const StartOver state_{.failed = TimePoint(std::chrono::nanoseconds(123456789)),
                         .device_failures = 3,
                         .grpc_port = 8590,
                         .http_port = 8591};
};

TEST_F(StartOverTest, TheNextProgramFindsTheState) {
  EXPECT_EXIT(Execute("test \"$RIVULET_STARTED_OVER\" = 123456789,3,8590,8591 && exit 7", state_),
              testing::ExitedWithCode(7), "");
  setenv(kVariable, "123456789,3,8590,8591", 1);
  const std::optional<StartOver> found = StartedOver();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->failed, state_.failed);
  EXPECT_EQ(found->device_failures, 3u);
  EXPECT_EQ(found->grpc_port, 8590);
  EXPECT_EQ(found->http_port, 8591);
}

TEST_F(StartOverTest, NonsenseIsIgnored) {
  EXPECT_FALSE(StartedOver().has_value());
  for (const char* text :
       {"", ",", "1,2,3", "1,2,3,4,5", "x,1,80,81", "1,-1,80,81", "1,1,0,81", "1,1,80,65536",
        "99999999999999999999,1,80,81", "-1,1,80,81", "9223372036854775807,1,80,81"}) {
    setenv(kVariable, text, 1);
    EXPECT_FALSE(StartedOver().has_value()) << text;
  }
}

TEST_F(StartOverTest, DescriptorsAreClosedAndTheAlarmIsTakenBack) {
  const auto run = [this] {
    const int file = open("/dev/null", O_RDONLY);  // not O_CLOEXEC
    alarm(1);
    Execute("test ! -e /proc/self/fd/" + std::to_string(file) + " && sleep 1.5 && exit 7", state_);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(7), "");
}

TEST_F(StartOverTest, EachProgramHasTheFaultsThatAreLeft) {
  const auto run = [this](const char* faults, const std::string& script) {
    setenv("RIVULET_FAIL_CUDA_AT", faults, 1);
    Execute(script, state_);
  };
  EXPECT_EXIT(run("20", "test -z \"${RIVULET_FAIL_CUDA_AT+set}\" && exit 7"),
              testing::ExitedWithCode(7), "");
  EXPECT_EXIT(run("20,5,6", "test \"$RIVULET_FAIL_CUDA_AT\" = 5,6 && exit 7"),
              testing::ExitedWithCode(7), "");
}

TEST_F(StartOverTest, AProgramThatIsNotThereIsSaid) {
  const absl::Status failed = ExecuteAgain("/nowhere/sh", {"sh"}, state_);
  EXPECT_FALSE(failed.ok());
  EXPECT_NE(failed.message().find("/nowhere/sh"), std::string::npos) << failed;
}

}  // namespace
}  // namespace rivulet
