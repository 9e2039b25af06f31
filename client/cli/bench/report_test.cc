// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/cli/bench/progress.h"

namespace rivulet::cli::bench {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

PhaseStatistics MakePhase(const std::string& name, int64_t gap_ms) {
  PhaseStatistics phase;
  phase.name = name;
  phase.end = phase.begin + std::chrono::seconds(4);
  phase.due = phase.succeeded = phase.completed = 8;
  phase.good = 6;
  phase.output_tokens = 400;
  phase.prompt_tokens = 200;
  phase.messages = 200;
  phase.token_gap.Add(milliseconds(gap_ms), 100);
  phase.message_gap.Add(milliseconds(gap_ms), 50);
  phase.first_token.Add(milliseconds(7));
  return phase;
}

RunResult MakeResult() {
  RunResult result;
  result.model.set_name("tales");
  result.started = "2026-01-02T03:04:05Z";
  result.wall_seconds = 5;
  result.client_cpu_seconds = 0.5;
  result.total_tokens = 500;
  result.phases.push_back(MakePhase("load", 2));
  return result;
}

nlohmann::json Parsed(const BenchOptions& options, const RunResult& result) {
  const std::string text = JsonReport(options, result);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  return nlohmann::json::parse(text);
}

TEST(BenchReportTest, TextHasTheFigures) {
  const std::string text = TextReport({.rate = 3, .slo_ttft_ms = 5}, MakeResult());
  EXPECT_THAT(text, HasSubstr("tales"));
  EXPECT_THAT(text, HasSubstr("open loop: 3 requests/s, poisson arrivals"));
  EXPECT_THAT(text, HasSubstr("8 due, 8 succeeded, 0 failed; 2.00/s completed"));
  EXPECT_THAT(text, HasSubstr("1.50 requests/s within the limits"));
  EXPECT_THAT(text, HasSubstr("400, 100.0/s, 2.00 per message"));
  EXPECT_THAT(text, HasSubstr("600, 150.0/s"));
  EXPECT_THAT(text, HasSubstr("client CPU 0.50 s, 10 % of a core, 1000.0 us per token"));
  EXPECT_THAT(text, Not(HasSubstr("note:")));
  EXPECT_THAT(text, Not(HasSubstr("error")));
}

TEST(BenchReportTest, JsonHasTheSameFigures) {
  const nlohmann::json json = Parsed({.client_version = "1.2", .slo_ttft_ms = 5}, MakeResult());
  EXPECT_EQ(json["model"]["name"], "tales");
  EXPECT_EQ(json["client_version"], "1.2");
  EXPECT_EQ(json["settings"]["concurrency"], 1);
  const nlohmann::json& phase = json["phases"].at(0);
  EXPECT_EQ(phase["output_tokens_per_second"], 100);
  EXPECT_EQ(phase["tokens_per_second"], 150);
  EXPECT_EQ(phase["goodput_per_second"], 1.5);
  EXPECT_EQ(phase["inter_token_ms"]["count"], 100);
  EXPECT_NEAR(phase["inter_token_ms"]["p99"], 2, 0.01);
  EXPECT_EQ(phase["first_token_ms"]["max"], 7);
  EXPECT_EQ(phase["errors"]["total"], 0);
  EXPECT_THAT(json["notes"], IsEmpty());
  EXPECT_FALSE(json.contains("interference"));
}

TEST(BenchReportTest, RatioOfThePhases) {
  RunResult result = MakeResult();
  result.phases = {MakePhase("without", 2), MakePhase("with", 5)};
  result.phases[1].interference.succeeded = 1;
  const BenchOptions options{.interfere_prompt = 20000};
  EXPECT_THAT(TextReport(options, result), HasSubstr("2.50x"));
  const nlohmann::json ratio = Parsed(options, result)["interference"]["inter_token_ratio"];
  EXPECT_NEAR(ratio["p99"], 2.5, 0.02);
  EXPECT_THAT(TextReport(options, result), HasSubstr("outputs without end"));
  EXPECT_THAT(TextReport(options, result), HasSubstr("8 due")) << "some failed and began again";
  result.phases[0].due = result.phases[1].due = 0;
  EXPECT_THAT(TextReport(options, result), Not(HasSubstr("0 due")));
  EXPECT_THAT(Doubts(options, result), IsEmpty());
  result.phases[1].interference.succeeded = 0;
  EXPECT_THAT(Doubts(options, result), ElementsAre(HasSubstr("no interfering prompt")));
}

TEST(BenchReportTest, InterruptedBeforeAnythingWasMeasured) {
  RunResult result = MakeResult();
  result.phases.clear();
  result.ending = "interrupted";
  const BenchOptions options{.interfere_prompt = 20000};
  EXPECT_THAT(TextReport(options, result), HasSubstr("interrupted"));
  EXPECT_TRUE(Parsed(options, result)["interference"].is_null());
}

TEST(BenchReportTest, AnEmptyPhaseHasAReport) {
  RunResult result = MakeResult();
  result.phases = {PhaseStatistics()};
  EXPECT_THAT(TextReport({}, result), HasSubstr("0 due"));
  EXPECT_EQ(Parsed({}, result)["phases"][0]["output_tokens_per_second"], 0);
}

TEST(BenchReportTest, ErrorsMayHaveAnyBytesAndAnyLength) {
  RunResult result = MakeResult();
  result.phases[0].errors.Add(absl::InternalError("\xff %s \"quoted\" " + std::string(5000, 'x')));
  EXPECT_THAT(TextReport({}, result), HasSubstr("INTERNAL"));
  const nlohmann::json errors = Parsed({}, result)["phases"][0]["errors"];
  EXPECT_EQ(errors["by_code"]["INTERNAL"], 1);
  EXPECT_THAT(errors["by_kind"][0]["text"].get<std::string>(), HasSubstr("\"quoted\""));
}

TEST(BenchReportTest, ABusyClientIsReported) {
  RunResult result = MakeResult();
  result.client_cpu_seconds = 4.9;
  result.phases[0].wrong_length = 3;
  EXPECT_THAT(Doubts({}, result), ElementsAre(HasSubstr("most of a core"), StartsWith("3 ")));
}

TEST(BenchProgressTest, LineHasItsNumbersAndFits) {
  const ProgressState state{.phase = "load",
                            .fraction = 0.5,
                            .elapsed_seconds = 12,
                            .done = 34,
                            .running = 8,
                            .errors = 2,
                            .tokens_per_second = 567};
  EXPECT_EQ(ProgressLine(state, 200),
            "[##########..........] load 12 s  34 done  8 running  567 tokens/s  2 errors");
  EXPECT_EQ(ProgressLine(state, 30).size(), 30u);
  EXPECT_THAT(ProgressLine({.fraction = 7}, 99), StartsWith("[####################]"));
  EXPECT_THAT(ProgressLine({.fraction = -1}, 99), StartsWith("[....................]"));
}

}  // namespace
}  // namespace rivulet::cli::bench
