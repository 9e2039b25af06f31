// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/metrics/metrics.h"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/metrics/log.h"

namespace rivulet {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(HistogramTest, BoundBelongsToItsBucket) {
  Histogram histogram(kTokenSeconds);
  histogram.Observe(.0001);   // equal to the first bound
  histogram.Observe(.00011);  // just above it
  histogram.Observe(100);     // above all
  EXPECT_EQ(histogram.count(0), 1u);
  EXPECT_EQ(histogram.count(1), 1u);
  EXPECT_EQ(histogram.count(kTokenSeconds.size()), 1u);
  EXPECT_DOUBLE_EQ(histogram.sum(), .0001 + .00011 + 100);
}

TEST(PrometheusTextTest, HasNamesHelpTypesAndLabels) {
  Metrics metrics;
  metrics.version = "1.2.3";
  metrics.requests_waiting.Set(3);
  metrics.state_slots_used.Set(1);
  metrics.state_slots_total.Set(4);
  metrics.prompt_tokens_computed.Add(7);
  metrics.CountRequest(Outcome::kEos);
  metrics.CountRequest(Outcome::kRejectedDraining);
  metrics.inter_token_latency.Observe(.00015);
  const std::string text = PrometheusText(metrics);
  EXPECT_THAT(text, HasSubstr("# TYPE rivulet_requests_waiting gauge"));
  EXPECT_THAT(text, HasSubstr("# HELP rivulet_requests_waiting Requests before their first token"));
  EXPECT_THAT(text, HasSubstr("rivulet_requests_waiting 3"));
  EXPECT_THAT(text, HasSubstr("rivulet_state_slot_usage_ratio 0.25"));
  metrics.fullest_pages_used.Set(3);
  metrics.fullest_pages_total.Set(4);
  EXPECT_THAT(PrometheusText(metrics), HasSubstr("rivulet_state_slot_usage_ratio 0.75"));
  EXPECT_THAT(text, HasSubstr("rivulet_prompt_tokens_total{source=\"computed\"} 7"));
  EXPECT_THAT(text, HasSubstr("rivulet_requests_total{outcome=\"eos\"} 1"));
  EXPECT_THAT(text, HasSubstr("rivulet_requests_total{outcome=\"rejected_draining\"} 1"));
  EXPECT_THAT(text, HasSubstr("rivulet_build_info{version=\"1.2.3\",commit=\"\"} 1"));
  EXPECT_THAT(text, HasSubstr("rivulet_inter_token_latency_seconds_bucket{le=\"0.0001\"} 0"));
  EXPECT_THAT(text, HasSubstr("rivulet_inter_token_latency_seconds_bucket{le=\"0.0002\"} 1"));
  EXPECT_THAT(text, HasSubstr("rivulet_inter_token_latency_seconds_bucket{le=\"+Inf\"} 1"));
}

TEST(PrometheusTextTest, ModelIsShownOnceItIsKnown) {
  Metrics metrics;
  metrics.model_name = "tales";
  EXPECT_THAT(PrometheusText(metrics), Not(HasSubstr("model_info")));
  metrics.model_known = true;
  EXPECT_THAT(PrometheusText(metrics), HasSubstr("rivulet_model_info{model_name=\"tales\""));
}

TEST(PrometheusTextTest, OneFamilyForAllOutcomes) {
  const std::string text = PrometheusText(Metrics());
  const size_t first = text.find("# TYPE rivulet_requests_total counter");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(text.find("# TYPE rivulet_requests_total", first + 1), std::string::npos);
}

TEST(LogTest, QuotesWhatWouldBreakALine) {
  EXPECT_EQ(FormatLogLine("done", {{"id", "a1"}, {"tokens", 17}, {"seconds", 0.5}}),
            "done id=a1 tokens=17 seconds=0.5");
  EXPECT_EQ(FormatLogLine("done", {{"id", "a b\n\"c\"\x01"}, {"empty", ""}}),
            "done id=\"a b\\n\\\"c\\\"\\x01\" empty=\"\"");
}

// A log pipe that nobody read stopped every request after 64 KiB of lines.
TEST(LogTest, FullPipeDropsLinesAndDoesNotWait) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int saved = dup(STDERR_FILENO);
  ASSERT_EQ(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
  for (int i = 0; i < 5000; ++i) LogInfo("line", {{"text", std::string(200, 'x')}});
  std::string text(1 << 17, '\0');
  EXPECT_GT(read(ends[0], text.data(), text.size()), 4096);
  LogInfo("last");
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, read(ends[0], text.data(), text.size()))));
  dup2(saved, STDERR_FILENO);
  for (const int end : {ends[0], ends[1], saved}) close(end);
  EXPECT_NE(text.find("last lines_dropped_before="), std::string::npos) << text;
}

TEST(LogTest, UnknownLevelIsRefused) {
  EXPECT_FALSE(SetLogLevel("loud"));
  EXPECT_TRUE(SetLogLevel("info"));
}

}  // namespace
}  // namespace rivulet
