// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Options of `rivulet` that meet each other: none is ignored without a word. What has an effect is
// printed, anything else is wrong usage (exit code 2) with the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/test_directory.h"
#include "tests/e2e/server_process.h"

namespace rivulet::e2e {
namespace {

using Arguments = std::vector<std::string>;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

Exit RunClient(Arguments arguments) {
  arguments.insert(arguments.begin(), Binary("rivulet"));
  return RunProgram(arguments);
}

std::string EmptyFile() {
  const std::string path = TestDirectory() + "/empty";
  std::ofstream(path) << "";
  return path;
}

// They are refused before the server is asked: nothing listens on port 1.
TEST(ClientOptionsTest, WhatWouldHaveNoEffectIsWrongUsage) {
  const struct {
    Arguments arguments;
    const char* why;
  } cases[] = {
      {{"generate", "-px", "--echo", "--json"}, "do not have the prompt"},
      {{"generate", "--tokens=1,2", "--special-tokens"}, "the ids of --tokens are used"},
      {{"score", "--tokens=1,2", "--special-tokens"}, "the ids of --tokens are used"},
      {{"generate", "-px", "--session=s", "--keep-choices"}, "--completions"},
      {{"generate", "-px", "--session", ""}, "--session: it is empty"},
      {{"generate", "-px", "--cache-salt", ""}, "--cache-salt: it is empty"},
      {{"generate", "-px", "--logit-bias=5=1", "--logit-bias=5=2"}, "token 5 has two values"},
      {{"generate", "-px", "--grammar", EmptyFile()}, "cannot read"},
      {{"generate", "-px", "--tls-cert", SourcePath("README.md")}, "--tls-key"},
      {{"generate", "-px", "--tls-key", SourcePath("README.md")}, "--tls-cert"},
      {{"chat", "--session", ""}, "--session: it is empty"},
      {{"sessions", "create", "--id", ""}, "--id: it is empty"},
      {{"sessions", "fork", "s", "--id", ""}, "--id: it is empty"},
      {{"bench", "--arrival=constant"}, "--rate"},
      {{"bench", "--max-in-flight=3"}, "--rate"},
      {{"bench", "--prompt-file", SourcePath("README.md"), "--prompt-tokens=8"}, "excludes"},
      {{"bench", "--prompt-file", ""}, "--prompt-file: it is empty"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(testing::PrintToString(one.arguments));
    Arguments arguments = one.arguments;
    arguments.insert(arguments.begin() + 1, "--server=127.0.0.1:1");
    const Exit exit = RunClient(arguments);
    EXPECT_EQ(exit.code, 2) << exit.output;
    EXPECT_THAT(exit.output, HasSubstr(one.why));
  }
}

// A reader that leaves had what it wanted; a full disk loses what was asked for.
TEST(ClientOutputTest, AFullDiskIsAFailure) {
  auto server = ServerProcess::Start(SourcePath("models/tales"));
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string where = " --server=" + (*server)->address() + " -p 'Once upon' ";
  const auto run = [&](const std::string& command, const std::string& to) {
    return RunProgram({"/bin/bash", "-c", Binary("rivulet") + " " + command + where + to});
  };
  for (const char* const command : {"generate", "generate -m2 -n2", "generate --json", "score",
                                    "generate --echo -m0", "score --json"}) {
    SCOPED_TRACE(command);
    const Exit full = run(command, "> /dev/full");
    EXPECT_EQ(full.code, 1);
    EXPECT_THAT(full.output, HasSubstr("standard output: No space left on device"));
    EXPECT_EQ(run(command, "| true; exit ${PIPESTATUS[0]}").code, 0);
  }
  EXPECT_EQ((*server)->Stop().code, 0);
}

class EchoTest : public testing::Test {
 protected:
  void Serve(const char* model) {
    auto server = ServerProcess::Start(SourcePath(model));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  std::string Echo(Arguments arguments) const {
    arguments.insert(arguments.begin(), {"generate", "--server=" + server_->address(), "--echo",
                                         "--max-tokens=2", "--seed=3"});
    const Exit exit = RunClient(arguments);
    EXPECT_EQ(exit.code, 0) << exit.output;
    return exit.output;
  }

  std::unique_ptr<ServerProcess> server_;
};

TEST_F(EchoTest, ThePromptComesFirst) {
  ASSERT_NO_FATAL_FAILURE(Serve("models/tales"));
  EXPECT_THAT(Echo({"-pOnce upon"}), MatchesRegex("Once upon [^\n]+\n"));
  EXPECT_THAT(Echo({"--tokens=2869,683"}), MatchesRegex("Once upon [^\n]+\n"));
  EXPECT_THAT(Echo({"-pOnce upon", "-n2"}), StartsWith("Once upon\n--- completion 0\n "));
  EXPECT_THAT(Echo({"-pOnce upon", "--logprobs=1"}), StartsWith("Once upon\n  "));
  EXPECT_THAT(Echo({"-pOnce upon", "--prompt-logprobs=1"}), StartsWith("Once upon\n  "));
  EXPECT_EQ(server_->Stop().code, 0);
}

TEST_F(EchoTest, WithoutATokenizerIdsAreShown) {
  ASSERT_NO_FATAL_FAILURE(Serve("tests/parity/fixtures/gla"));
  EXPECT_THAT(Echo({"--tokens=5,6"}), MatchesRegex("5 6 [0-9]+ [0-9]+ \n"));
  EXPECT_EQ(server_->Stop().code, 0);
}

}  // namespace
}  // namespace rivulet::e2e
