// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// `rivulet bench` against the real server: what it reports must agree with what the server counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "tests/e2e/server_process.h"

namespace rivulet::e2e {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::unique_ptr<ServerProcess> StartTales(const std::vector<std::string>& flags = {}) {
  auto server = ServerProcess::Start(SourcePath("models/tales"), flags);
  EXPECT_TRUE(server.ok()) << server.status().ToString();
  return server.ok() ? *std::move(server) : nullptr;
}

std::vector<std::string> BenchCommand(const ServerProcess& server,
                                      const std::vector<std::string>& flags) {
  std::vector<std::string> command = {Binary("rivulet"), "bench", "--server", server.address()};
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

// The report of a run with --json, which is all that the program may write without a terminal.
nlohmann::json Report(const Exit& exit) {
  const auto report = nlohmann::json::parse(exit.output, nullptr, false);
  EXPECT_FALSE(report.is_discarded()) << exit.output;
  return report;
}

// The sum over all lines of the metrics page that begin with `name`.
double MetricSum(const ServerProcess& server, const std::string& name) {
  const std::string page = "\n" + HttpGet(server.http_address(), "/metrics").body;
  double sum = 0;
  for (size_t at = page.find("\n" + name); at != std::string::npos;
       at = page.find("\n" + name, at + 1)) {
    const size_t end = page.find('\n', at + 1);
    sum += std::stod(page.substr(page.rfind(' ', end)));
  }
  return sum;
}

TEST(BenchCliTest, ClosedLoopAgreesWithTheServersMetrics) {
  auto server = StartTales();
  ASSERT_NE(server, nullptr);
  const Exit exit =
      RunProgram(BenchCommand(*server, {"--concurrency", "4", "--requests", "13", "--json",
                                        "--prompt-tokens", "3:40", "--output-tokens", "1:30"}));
  ASSERT_EQ(exit.code, 0) << exit.output;
  const nlohmann::json report = Report(exit);
  EXPECT_EQ(report["model"]["name"], "tales");
  EXPECT_EQ(report["ending"], "complete");
  EXPECT_THAT(report["notes"], IsEmpty());
  const nlohmann::json& phase = report["phases"].at(0);
  EXPECT_EQ(phase["succeeded"], 13);
  EXPECT_EQ(phase["failed"], 0);
  EXPECT_EQ(phase["wrong_length"], 0);
  EXPECT_EQ(phase["first_token_ms"]["count"], 13);
  EXPECT_GT(phase["output_tokens"], 13);
  EXPECT_EQ(phase["output_tokens"], MetricSum(*server, "rivulet_generation_tokens_total"));
  EXPECT_EQ(phase["prompt_tokens"], MetricSum(*server, "rivulet_prompt_tokens_total"));
  EXPECT_EQ(MetricSum(*server, "rivulet_requests_total{"), 13);
  const double later_tokens = phase["output_tokens"].get<double>() - 13;
  EXPECT_EQ(later_tokens, MetricSum(*server, "rivulet_inter_token_latency_seconds_count"));
  // Tokens that came together with the first one have no gap.
  EXPECT_LE(phase["inter_token_ms"]["count"].get<double>(), later_tokens);
}

TEST(BenchCliTest, OpenLoopSendsEveryRequest) {
  auto server = StartTales();
  ASSERT_NE(server, nullptr);
  const Exit exit = RunProgram(
      BenchCommand(*server, {"--rate", "200", "--requests", "20", "--prompt-tokens", "8",
                             "--output-tokens", "4", "--json", "--slo-ttft-ms", "60000"}));
  ASSERT_EQ(exit.code, 0) << exit.output;
  const nlohmann::json phase = Report(exit)["phases"].at(0);
  EXPECT_EQ(phase["succeeded"], 20);
  EXPECT_EQ(phase["good"], 20);
  EXPECT_EQ(phase["output_tokens"], 80);
  EXPECT_EQ(MetricSum(*server, "rivulet_generation_tokens_total"), 80);
}

TEST(BenchCliTest, RefusalsOfAFullQueueAreReported) {
  auto server = StartTales({"--max-queue=1", "--state-memory=6MiB"});
  ASSERT_NE(server, nullptr);
  const Exit exit = RunProgram(BenchCommand(
      *server, {"--rate", "2000", "--requests", "60", "--output-tokens", "200", "--json"}));
  ASSERT_EQ(exit.code, 0) << exit.output;
  const nlohmann::json phase = Report(exit)["phases"].at(0);
  EXPECT_GT(phase["succeeded"], 0);
  EXPECT_GT(phase["failed"], 0);
  EXPECT_EQ(phase["errors"]["by_code"]["RESOURCE_EXHAUSTED"], phase["failed"]);
  EXPECT_EQ(phase["output_tokens"], MetricSum(*server, "rivulet_generation_tokens_total"));
}

TEST(BenchCliTest, InterferenceInOneRun) {
  auto server = StartTales();
  ASSERT_NE(server, nullptr);
  const Exit exit = RunProgram(BenchCommand(
      *server, {"--concurrency", "2", "--duration", "0.5", "--interfere-prompt", "100", "--json"}));
  ASSERT_EQ(exit.code, 0) << exit.output;
  const nlohmann::json report = Report(exit);
  EXPECT_GT(report["phases"].at(0)["inter_token_ms"]["count"], 0);
  EXPECT_GT(report["phases"].at(1)["inter_token_ms"]["count"], 0);
  EXPECT_GT(report["interference"]["succeeded"], 0);
  EXPECT_GT(report["interference"]["inter_token_ratio"]["p99"], 0);
}

TEST(BenchCliTest, SessionsComputeOnlyTheirNewTokens) {
  auto server = StartTales();
  ASSERT_NE(server, nullptr);
  const Exit exit = RunProgram(
      BenchCommand(*server, {"--concurrency", "3", "--turns", "3", "--requests", "5",
                             "--prompt-tokens", "10", "--output-tokens", "6", "--json"}));
  ASSERT_EQ(exit.code, 0) << exit.output;
  const nlohmann::json phase = Report(exit)["phases"].at(0);
  EXPECT_EQ(phase["succeeded"], 15);
  for (int turn = 0; turn < 3; ++turn) {
    // All tokens of the turns before but the last sampled one.
    const int cached = turn > 0 ? turn * 16 - 1 : 0;
    EXPECT_EQ(phase["turns"].at(turn)["succeeded"], 5);
    EXPECT_EQ(phase["turns"].at(turn)["cached_tokens"], 5 * cached);
  }
  EXPECT_EQ(phase["output_tokens"], MetricSum(*server, "rivulet_generation_tokens_total"));
  EXPECT_EQ(MetricSum(*server, "rivulet_state_slots_used"), 0);
}

// Without a server: what is wrong is said before anything is sent.
TEST(BenchCliTest, NumbersAreDecimals) {
  const std::vector<std::string> whole = {"010x", "0x10", "-1", "+1", "18446744073709551616"};
  const std::vector<std::string> decimal = {"0x10", "nan", "inf", "1 s"};
  const auto refuses = [](std::vector<std::string> command, const std::string& flag,
                          const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      std::vector<std::string> all = {Binary("rivulet"), command[0], "--server", "127.0.0.1:1"};
      all.insert(all.end(), command.begin() + 1, command.end());
      all.insert(all.end(), {flag, text});
      const Exit exit = RunProgram(all);
      EXPECT_EQ(exit.code, 2) << flag << " " << text << ": " << exit.output;
      EXPECT_THAT(exit.output, HasSubstr(flag + ": ")) << text;
    }
  };
  for (const char* flag : {"--concurrency", "--requests", "--connections", "--max-in-flight",
                           "--interfere-prompt", "--seed", "--turns", "--prompt-tokens"}) {
    refuses({"bench"}, flag, whole);
  }
  for (const char* flag : {"--rate", "--duration", "--warmup", "--drain", "--slo-ttft-ms",
                           "--slo-itl-ms", "--temperature", "--timeout"}) {
    refuses({"bench"}, flag, decimal);
  }
  for (const char* flag : {"--max-tokens", "--completions", "--top-k", "--stop-id", "--tokens"}) {
    refuses({"generate"}, flag, whole);
  }
  refuses({"generate", "-p", "x"}, "--logit-bias", {"0x10=1", "1=0x1p3", "1", "1=", ""});
  refuses({"generate", "-p", "x"}, "--temperature", decimal);
  refuses({"model"}, "--timeout", {"-1", "1e10", "nan"});
  refuses({"score", "-p", "x"}, "--top", whole);
}

TEST(BenchCliTest, TextReportWithoutATerminalHasNoProgress) {
  auto server = StartTales();
  ASSERT_NE(server, nullptr);
  const Exit exit = RunProgram(
      BenchCommand(*server, {"--requests", "010", "--prompt-tokens", "8", "--output-tokens", "9"}));
  EXPECT_EQ(exit.code, 0);
  EXPECT_THAT(exit.output, HasSubstr("10 due, 10 succeeded, 0 failed")) << "010 is ten";
  EXPECT_THAT(exit.output, Not(HasSubstr("\r")));
}

TEST(BenchCliTest, CtrlCReportsWhatWasMeasured) {
  auto server = StartTales();
  ASSERT_NE(server, nullptr);
  auto bench = ChildProcess::Start(
      BenchCommand(*server, {"--duration", "300", "--output-tokens", "1000000", "--json"}));
  for (int i = 0; i < 600 && MetricSum(*server, "rivulet_generation_tokens_total") < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  bench->Signal(SIGINT);
  const Exit exit = bench->Wait(seconds(30));
  EXPECT_EQ(exit.code, 130) << exit.output;
  const nlohmann::json report = Report(exit);
  EXPECT_EQ(report["ending"], "interrupted");
  EXPECT_EQ(report["phases"].at(0)["cut_off"], 1);
  EXPECT_GT(report["phases"].at(0)["output_tokens"], 0);
}

TEST(BenchCliTest, ServerThatDies) {
  auto server = StartTales();
  ASSERT_NE(server, nullptr);
  auto bench = ChildProcess::Start(BenchCommand(
      *server, {"--concurrency", "2", "--requests", "8", "--json", "--output-tokens", "1000000"}));
  for (int i = 0; i < 600 && MetricSum(*server, "rivulet_generation_tokens_total") < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  server->process().Signal(SIGKILL);
  const Exit exit = bench->Wait(seconds(60));
  EXPECT_EQ(exit.code, 1) << exit.output;
  const nlohmann::json phase = Report(exit)["phases"].at(0);
  EXPECT_EQ(phase["failed"], 8);
  EXPECT_EQ(phase["errors"]["by_code"]["UNAVAILABLE"], 8);
}

TEST(BenchCliTest, MistakesEndWithAMessage) {
  const std::string nothing_there = "127.0.0.1:1";
  const auto run = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> command = {Binary("rivulet"), "bench", "--server", nothing_there};
    command.insert(command.end(), flags.begin(), flags.end());
    return RunProgram(command);
  };
  EXPECT_EQ(run({}).code, 1);
  EXPECT_THAT(run({}).output, HasSubstr("UNAVAILABLE"));
  EXPECT_EQ(run({"--concurrency", "0"}).code, 2);
  EXPECT_THAT(run({"--concurrency", "0"}).output, HasSubstr("--concurrency"));
  EXPECT_THAT(run({"--output-tokens", "9:2"}).output, HasSubstr("9:2"));
  EXPECT_THAT(run({"--arrival", "often"}).output, HasSubstr("often"));
  for (const Exit& exit : {run({"--rate", "-1"}), run({"--rate", "x"}), run({"--turns", "-1"}),
                           run({"--prompt-tokens", "0"}), run({"--rate", "1", "-c", "2"}),
                           run({"--requests", "1", "--interfere-prompt", "5"})}) {
    EXPECT_EQ(exit.code, 2) << exit.output;
    EXPECT_FALSE(exit.output.empty());
  }
}

}  // namespace
}  // namespace rivulet::e2e
