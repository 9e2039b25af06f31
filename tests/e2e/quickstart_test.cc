// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// deploy/quickstart on a real terminal, with the programs that were built for the tests. tests/run
// tries that it installs and builds.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/e2e/server_process.h"
#include "tests/e2e/terminal.h"

namespace rivulet::e2e {
namespace {

constexpr const char* kCtrlC = "\x03";
constexpr const char* kCtrlD = "\x04";

std::string BinaryFolder() {
  return std::filesystem::absolute(Binary("rivulet")).parent_path().string();
}

class QuickstartTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
    mark_ = "QUICKSTART_TEST=" + std::to_string(getpid()) + info->name();
    terminal_ = Terminal::Start(
        {"/bin/bash", SourcePath("deploy/quickstart"), "-m", "1000000", "--ignore-eos"},
        {"RIVULET_BIN_DIR=" + BinaryFolder(), mark_, "NO_COLOR=1",
         "XDG_STATE_HOME=" + testing::TempDir() + "/rivulet_" + mark_, "HOME=/nonexistent"});
    ASSERT_TRUE(terminal_->WaitFor("ctrl-D ends.").found) << terminal_->output();
    ASSERT_TRUE(terminal_->WaitFor("> ").found);
    ASSERT_TRUE(IsLeft("rivulet-server")) << "or the test would see nothing left at the end";
  }
  void TearDown() override {
    std::filesystem::remove_all(testing::TempDir() + "/rivulet_" + mark_);
  }

  // Whether a program of this quickstart runs: its environment has the mark.
  bool IsLeft(const std::string& program) const {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::error_code error;
      const auto file = std::filesystem::read_symlink(entry.path() / "exe", error);
      if (error || file.filename() != program) continue;
      std::ifstream stream(entry.path() / "environ");
      const std::string environment{std::istreambuf_iterator<char>(stream), {}};
      if (environment.find(mark_ + '\0') != std::string::npos) return true;
    }
    return false;
  }

  void ExpectNothingLeft() const {
    EXPECT_FALSE(IsLeft("rivulet-server"));
    EXPECT_FALSE(IsLeft("rivulet"));
  }

  // Types a line, lets some text come and stops it.
  void StopATurn(const std::string& line) {
    terminal_->Type(line + "\r");
    const size_t before = terminal_->printed();
    for (int i = 0; i < 60'000 && terminal_->printed() < before + 200; ++i) usleep(1000);
    terminal_->Type(kCtrlC);
    EXPECT_TRUE(terminal_->WaitFor("stopped by you]").found) << terminal_->output();
    EXPECT_TRUE(terminal_->WaitFor("> ").found);
  }

  std::string mark_;
  std::unique_ptr<Terminal> terminal_;
};

TEST_F(QuickstartTest, CtrlCStopsTheTurnAndNotTheServer) {
  StopATurn("Once upon a time");
  StopATurn("and then");
  terminal_->Type(kCtrlC);  // at the prompt
  ASSERT_TRUE(terminal_->WaitFor("^C\r\n").found) << terminal_->output();
  StopATurn("there was");
  terminal_->Type(kCtrlD);
  EXPECT_EQ(terminal_->Wait(), 0) << terminal_->output();
  ExpectNothingLeft();
}

TEST_F(QuickstartTest, SigtermEndsChatAndServer) {
  kill(terminal_->pid(), SIGTERM);
  EXPECT_EQ(terminal_->Wait(), 143) << terminal_->output();
  ExpectNothingLeft();
}

TEST_F(QuickstartTest, SighupEndsChatAndServer) {
  kill(terminal_->pid(), SIGHUP);
  EXPECT_EQ(terminal_->Wait(), 129) << terminal_->output();
  ExpectNothingLeft();
}

// The quickstart's own flags do not meet those that it passes on.
TEST(QuickstartPromptTest, PrintsTextOrJson) {
  const auto prompt = [](const std::string& flag) {
    return RunProgram({"/usr/bin/env", "RIVULET_BIN_DIR=" + BinaryFolder(), "/bin/bash",
                       SourcePath("deploy/quickstart"), "--prompt", "Once upon", flag});
  };
  const Exit text = prompt("--max-tokens=2");
  EXPECT_EQ(text.code, 0) << text.output;
  EXPECT_NE(text.output.find("Once upon a time"), std::string::npos) << text.output;
  const Exit json = prompt("--json");
  EXPECT_EQ(json.code, 0) << json.output;
  EXPECT_NE(json.output.find("\"usage\""), std::string::npos) << json.output;
}

}  // namespace
}  // namespace rivulet::e2e
