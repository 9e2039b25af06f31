// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_subject.h"
#include "kernels/mixers/log_linear/subject_checks.h"
#include "kernels/mixers/log_linear_gated_deltanet/log_linear_gated_deltanet_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/log_linear_gated_deltanet/vectors/vectors.json";

SuiteCase Core(std::string name, const LogLinearGatedDeltaNetOptions& options) {
  return {std::move(name),
          [=] { return std::make_unique<LogLinearGatedDeltaNetSubject>(options); }};
}

// 300 tokens are more than 8 levels reach: all but the last three go on at their last level.
std::vector<SuiteCase> CoreCases() {
  constexpr DType kNarrow = DType::kBFloat16;
  return {Core("levels1_d16_e16", {3, 16, 16, 1}),
          Core("levels3_d24_e40", {2, 24, 40, 3}),
          Core("levels5_d32_e64", {3, 32, 64, 5, 1.0, -0.3}),
          Core("levels6_d64_e32_negative_eigenvalues", {4, 64, 32, 6, 2.0, -0.02}),
          Core("levels8_d128_e64", {2, 128, 64, 8, 1.0, -0.01}),
          Core("levels15_d256_e20", {2, 256, 20, 15, 0.5, -0.01}),
          Core("levels15_d16_e128_fast_decay", {2, 16, 128, 15, 1.0, -8.0}),
          Core("levels64_d20_e256", {2, 20, 256, 64, 0.2, -0.01}),
          Core("levels15_d96_e192", {1, 96, 192, 15, 0.5, -0.01}),
          Core("levels7_d64_e64_bf16", {3, 64, 64, 7, 1.0, -0.05, kNarrow}),
          Core("levels15_d48_e80_bf16", {3, 48, 80, 15, 0.5, -0.02, kNarrow})};
}

INSTANTIATE_TEST_SUITE_P(LogLinearGatedDeltaNet, MixerSuite,
                         testing::ValuesIn(BothIntervals(CoreCases())), SuiteCaseName);

TEST(LogLinearGatedDeltaNet, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    return std::make_unique<LogLinearGatedDeltaNetSubject>(
        LogLinearGatedDeltaNetOptions{p.at("heads"), p.at("key_dim"), p.at("value_dim"),
                                      p.at("levels"), p.at("beta"), p.at("lowest")});
  });
}

TEST(LogLinearGatedDeltaNet, IsGatedDeltaNetWhenAllLevelsCountTheSame) {
  const LogLinearGatedDeltaNetOptions options{2, 32, 48, 7, 1.0, -0.1, DType::kFloat32, 1.0, 1.0};
  LogLinearGatedDeltaNetSubject subject(options);
  const auto plain = MakeDeltaRuleSubject({2, 2, 32, 48}, options.beta, options.lowest);
  CheckSameAsPlain(subject, *plain);
}

TEST(LogLinearGatedDeltaNet, ForksDecayTheirSharedPagesEachInItsOwnWay) {
  LogLinearGatedDeltaNetSubject subject(LogLinearGatedDeltaNetOptions{2, 32, 48, 9, 1.0, -0.1});
  CheckForks(subject);
}

// Rates so small that after a million tokens something is left of the first: with 1, a few tokens
// overwrite everything. Each of 65536 folds then changes a page by less than a float resolves well.
void RunFar(uint32_t levels, uint64_t tokens) {
  LogLinearGatedDeltaNetSubject subject({1, 4, 3, levels, 4e-6, -2e-6});
  CheckFar(subject, levels, tokens, 3e-4,
           [&](ConstFloatMatrix inputs, uint64_t t) { return subject.ReferenceAt(inputs, t); });
}

TEST(LogLinearGatedDeltaNet, AMillionTokensFillAllButTheLastLevel) {
  RunFar(22, uint64_t{1} << 20);
}
TEST(LogLinearGatedDeltaNet, AMillionTokensFillEveryLevel) { RunFar(21, uint64_t{1} << 20); }
TEST(LogLinearGatedDeltaNet, TheLastLevelHoldsWhatIsOlder) { RunFar(9, uint64_t{1} << 16); }

// --- the layer's choices -----------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Mixer>> Make(uint32_t max_levels = 0,
                                            LevelOverflow overflow = LevelOverflow::kError) {
  const DeltaRuleConfig config{
      .shape = {2, 2, 16, 32}, .decays = true, .log_linear = true, .max_levels = max_levels};
  GeneratedParameters parameters({{"L", {{2, 15}}}}, DType::kFloat32);
  return MakeLayer(config, {16, parameters, {.level_overflow = overflow}});
}

TEST(LogLinearGatedDeltaNet, LevelsSayHowLongASessionMayBe) {
  EXPECT_EQ((*Make())->max_tokens(), 16384u);
  EXPECT_EQ((*Make(0, LevelOverflow::kClamp))->max_tokens(), UINT64_MAX);
  EXPECT_EQ((*Make())->state_layout().page_kind().levels, 10u);
  EXPECT_EQ((*Make())->state_layout().page_kind().rule, PageRule::kRewrittenFenwick);
}

TEST(LogLinearGatedDeltaNet, RefusesAnotherLevelCountThanTheTensors) {
  const absl::Status status = Make(12).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message().data(), status.message().size()),
              testing::AllOf(testing::HasSubstr("max_levels is 12"),
                             testing::HasSubstr("L has 15 levels")));
}

}  // namespace
}  // namespace rivulet
