// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/metrics/metrics.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

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
  metrics.state_bytes.Set(5);
  metrics.state_slots_used.Set(1);
  metrics.state_slots_total.Set(4);
  metrics.prompt_tokens_computed.Add(7);
  metrics.CountRequest(Outcome::kEos);
  metrics.CountRequest(Outcome::kRejectedDraining);
  metrics.CountRequest(Outcome::kStalled);
  metrics.inter_token_latency.Observe(.00015);
  const std::string text = PrometheusText(metrics);
  EXPECT_THAT(text, HasSubstr("# TYPE rivulet_requests_waiting gauge"));
  EXPECT_THAT(text, HasSubstr("# HELP rivulet_requests_waiting Requests before their first token"));
  EXPECT_THAT(text, HasSubstr("rivulet_requests_waiting 3"));
  EXPECT_THAT(text, HasSubstr("rivulet_state_bytes{tier=\"host\"} 5"));
  metrics.device_weights.Set(1);
  EXPECT_THAT(PrometheusText(metrics), HasSubstr("rivulet_state_bytes{tier=\"device\"} 5"));
  EXPECT_THAT(text, HasSubstr("rivulet_state_slot_usage_ratio 0.25"));
  metrics.fullest_pages_used.Set(3);
  metrics.fullest_pages_total.Set(4);
  EXPECT_THAT(PrometheusText(metrics), HasSubstr("rivulet_state_slot_usage_ratio 0.75"));
  EXPECT_THAT(text, HasSubstr("rivulet_prompt_tokens_total{source=\"computed\"} 7"));
  EXPECT_THAT(text, HasSubstr("rivulet_requests_total{outcome=\"eos\"} 1"));
  EXPECT_THAT(text, HasSubstr("rivulet_requests_total{outcome=\"rejected_draining\"} 1"));
  EXPECT_THAT(text, HasSubstr("rivulet_requests_total{outcome=\"stalled\"} 1"));
  EXPECT_THAT(text, HasSubstr("rivulet_build_info{version=\"1.2.3\",commit=\"\"} 1"));
  EXPECT_THAT(text, HasSubstr("rivulet_inter_token_latency_seconds_bucket{le=\"0.0001\"} 0"));
  EXPECT_THAT(text, HasSubstr("rivulet_inter_token_latency_seconds_bucket{le=\"0.0002\"} 1"));
  EXPECT_THAT(text, HasSubstr("rivulet_inter_token_latency_seconds_bucket{le=\"+Inf\"} 1"));
}

TEST(PrometheusTextTest, ModelIsShownOnceItIsKnown) {
  Metrics metrics;
  metrics.model_name = "tales";
  metrics.kv_dtype = "bf16";
  metrics.device = "NVIDIA H200";
  EXPECT_THAT(PrometheusText(metrics), Not(HasSubstr("model_info")));
  metrics.model_known = true;
  EXPECT_THAT(PrometheusText(metrics), HasSubstr("rivulet_model_info{model_name=\"tales\""));
  EXPECT_THAT(PrometheusText(metrics), HasSubstr("kv_dtype=\"bf16\",device=\"NVIDIA H200\"} 1"));
}

TEST(PrometheusTextTest, OneFamilyForAllOutcomes) {
  const std::string text = PrometheusText(Metrics());
  const size_t first = text.find("# TYPE rivulet_requests_total counter");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(text.find("# TYPE rivulet_requests_total", first + 1), std::string::npos);
}

}  // namespace
}  // namespace rivulet
