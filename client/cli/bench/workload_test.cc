// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "kernels/base/test_directory.h"
#include "kernels/base/test_seed.h"

namespace rivulet::cli::bench {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Ge;
using testing::HasSubstr;
using testing::Le;
using testing::Lt;

Workload MakeWorkload(const BenchOptions& options, uint32_t vocabulary = 100) {
  auto workload = Workload::Make(options, vocabulary);
  EXPECT_TRUE(workload.ok()) << workload.status();
  return *std::move(workload);
}

TEST(BenchWorkloadTest, PoissonGapsAreExponential) {
  constexpr int kGaps = 200'000;
  constexpr double kRate = 250;
  ArrivalProcess arrivals(Arrival::kPoisson, kRate, TestSeed());
  double sum = 0;
  int over_mean = 0;
  for (int i = 0; i < kGaps; ++i) {
    const double gap = std::chrono::duration<double>(arrivals.NextGap()).count();
    EXPECT_GE(gap, 0);
    sum += gap;
    over_mean += gap > 1 / kRate ? 1 : 0;
  }
  EXPECT_NEAR(sum * kRate / kGaps, 1, 0.02);                       // nine standard deviations
  EXPECT_NEAR(double{1} * over_mean / kGaps, std::exp(-1), 0.01);  // likewise
}

TEST(BenchWorkloadTest, ConstantGapsAreTheInverseOfTheRate) {
  ArrivalProcess arrivals(Arrival::kConstant, 250, 1);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(arrivals.NextGap(), std::chrono::milliseconds(4));
}

TEST(BenchWorkloadTest, SameSeedSameArrivals) {
  ArrivalProcess a(Arrival::kPoisson, 10, 7), b(Arrival::kPoisson, 10, 7);
  ArrivalProcess other(Arrival::kPoisson, 10, 8);
  for (int i = 0; i < 10; ++i) {
    const auto gap = a.NextGap();
    EXPECT_EQ(gap, b.NextGap());
    EXPECT_NE(gap, other.NextGap());
  }
}

TEST(BenchWorkloadTest, LengthsFillTheirRange) {
  BenchOptions options;
  options.prompt_tokens = {.low = 5, .high = 9};
  options.output_tokens = LengthRange{.low = 2, .high = 3};
  options.seed = TestSeed();
  const Workload workload = MakeWorkload(options);
  std::set<int> prompts;
  std::set<uint32_t> outputs;
  for (uint64_t job = 0; job < 500; ++job) {
    const v1::GenerateRequest request = workload.MakeRequest(job, 0);
    prompts.insert(request.token_ids().ids_size());
    outputs.insert(request.max_tokens());
    EXPECT_EQ(request.stop().min_tokens(), request.max_tokens());
    EXPECT_TRUE(request.stop().ignore_eos());
    EXPECT_THAT(request.token_ids().ids(), Each(Lt(100u)));
  }
  EXPECT_THAT(prompts, ElementsAre(5, 6, 7, 8, 9));
  EXPECT_THAT(outputs, ElementsAre(2, 3));
}

TEST(BenchWorkloadTest, IdsReachTheWholeVocabulary) {
  const Workload workload = MakeWorkload({.prompt_tokens = {.low = 2000, .high = 2000}}, 10);
  const v1::GenerateRequest request = workload.MakeRequest(0, 0);
  const auto& ids = request.token_ids().ids();
  EXPECT_EQ(std::set<uint32_t>(ids.begin(), ids.end()).size(), 10u);
}

TEST(BenchWorkloadTest, SameSeedSameDistinctRequests) {
  BenchOptions options;
  options.turns = 3;
  const Workload a = MakeWorkload(options), b = MakeWorkload(options);
  std::set<std::string> different;
  for (uint64_t job = 0; job < 3; ++job) {
    for (uint32_t turn = 0; turn < 3; ++turn) {
      EXPECT_EQ(a.MakeRequest(job, turn).DebugString(), b.MakeRequest(job, turn).DebugString());
      different.insert(a.MakeRequest(job, turn).token_ids().DebugString());
    }
  }
  EXPECT_EQ(different.size(), 9u);
  options.seed = 2;
  EXPECT_NE(MakeWorkload(options).MakeRequest(0, 0).DebugString(),
            a.MakeRequest(0, 0).DebugString());
}

TEST(BenchWorkloadTest, InterferingPromptHasItsLengthAndOneToken) {
  const v1::GenerateRequest request = MakeWorkload({}).MakeInterferingRequest(3, 777);
  EXPECT_EQ(request.token_ids().ids_size(), 777);
  EXPECT_EQ(request.max_tokens(), 1u);
}

TEST(BenchWorkloadTest, PromptsOfAFileAreUsedInTurn) {
  BenchOptions options;
  options.prompt_file = TestDirectory() + "/bench_prompts.txt";
  std::ofstream(options.prompt_file) << "one\n\ntwo\n";
  const Workload workload = MakeWorkload(options, 0);
  EXPECT_EQ(workload.MakeRequest(0, 0).prompt(), "one");
  EXPECT_EQ(workload.MakeRequest(1, 0).prompt(), "two");
  EXPECT_EQ(workload.MakeRequest(2, 0).prompt(), "one");
}

TEST(BenchWorkloadTest, InvalidPromptSourcesAreRefused) {
  EXPECT_TRUE(absl::IsNotFound(Workload::Make({.prompt_file = "/nonexistent"}, 5).status()));
  EXPECT_TRUE(absl::IsNotFound(Workload::Make({.prompt_file = "/"}, 5).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Workload::Make({}, 0).status()));
}

TEST(BenchOptionsTest, Lengths) {
  EXPECT_EQ(*ParseLengthRange("512"), (LengthRange{.low = 512, .high = 512}));
  EXPECT_EQ(*ParseLengthRange("1:2"), (LengthRange{.low = 1, .high = 2}));
  EXPECT_EQ(ToString(*ParseLengthRange("128:1024")), "128:1024");
  for (const char* wrong : {"", "0", "-1", "x", "5:", ":5", "6:5", "1:2:3", "10000001", "1.5"}) {
    const auto range = ParseLengthRange(wrong);
    ASSERT_FALSE(range.ok()) << wrong;
    EXPECT_THAT(std::string(range.status().message()), HasSubstr(wrong));
  }
}

TEST(BenchOptionsTest, DefaultsOfOutputsAndDuration) {
  EXPECT_EQ(OutputTokens({}).low, 128u);
  EXPECT_GT(OutputTokens({.interfere_prompt = 5}).low, 100'000u);
  EXPECT_EQ(PhaseSeconds({}), 10);
  EXPECT_GT(PhaseSeconds({.requests = 5}), 1e5);
  EXPECT_EQ(PhaseSeconds({.requests = 5, .duration_seconds = 3}), 3);
}

TEST(BenchOptionsTest, InvalidValuesAreNamed) {
  const std::pair<BenchOptions, const char*> wrong[] = {
      {{.concurrency = 0}, "--concurrency = 0"},
      {{.rate = -1}, "--rate = -1"},
      {{.rate = std::nan("")}, "--rate = nan"},
      {{.duration_seconds = 1e300}, "--duration"},
      {{.connections = 0}, "--connections"},
      {{.max_in_flight = 0}, "--max-in-flight"},
      {{.temperature = -1.0F}, "--temperature"},
      {{.turns = 5000}, "--turns"},
      {{.slo_ttft_ms = -3}, "--slo-ttft-ms"},
      {{.requests = 5, .interfere_prompt = 5}, "--requests"},
      {{.turns = 2, .interfere_prompt = 5}, "--turns"},
  };
  EXPECT_TRUE(Validate({}).ok());
  for (const auto& [options, flag] : wrong) {
    EXPECT_THAT(std::string(Validate(options).message()), HasSubstr(flag));
  }
}

}  // namespace
}  // namespace rivulet::cli::bench
