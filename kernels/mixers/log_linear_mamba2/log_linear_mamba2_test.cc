// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/mixers/log_linear/subject_checks.h"
#include "kernels/mixers/log_linear_mamba2/log_linear_mamba2_subject.h"
#include "kernels/mixers/mamba2/mamba2_subject.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/log_linear_mamba2/vectors/vectors.json";

SuiteCase Core(std::string name, const LogLinearMamba2Options& options) {
  return {std::move(name), [=] { return std::make_unique<LogLinearMamba2Subject>(options); }};
}

// 300 tokens are more than 8 levels reach: all but the last three go on at their last level.
std::vector<SuiteCase> CoreCases() {
  constexpr DType kFloat = DType::kFloat32, kNarrow = DType::kBFloat16;
  return {Core("levels1_n16_p16", {{3, 1, 16, 16, kFloat}, 1}),
          Core("levels3_n24_p24", {{4, 1, 24, 24, kFloat}, 3}),
          Core("levels5_n32_p64", {{3, 1, 32, 64, kFloat}, 5}),
          Core("levels6_n64_p32", {{4, 1, 64, 32, kFloat}, 6, 0.001, 0.1}),
          Core("levels8_n128_p64", {{4, 1, 128, 64, kFloat}, 8}),
          Core("levels15_n256_p20", {{2, 1, 256, 20, kFloat}, 15, 0.001, 0.05}),
          Core("levels15_n16_p128_fast_decay", {{2, 1, 16, 128, kFloat}, 15, 1.0, 16.0}),
          Core("levels64_n20_p256", {{2, 1, 20, 256, kFloat}, 64, 0.001, 0.01}),
          Core("levels7_n64_p64_bf16", {{3, 1, 64, 64, kNarrow}, 7, 0.01, 0.1}),
          Core("levels15_n48_p80_bf16", {{3, 1, 48, 80, kNarrow}, 15, 0.001, 0.05})};
}

INSTANTIATE_TEST_SUITE_P(LogLinearMamba2, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(LogLinearMamba2, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    const HeadShape shape{p.at("heads"), 1, p.at("state_size"), p.at("head_dim")};
    return std::make_unique<LogLinearMamba2Subject>(
        LogLinearMamba2Options{shape, p.at("levels"), p.at("slowest"), p.at("fastest")});
  });
}

TEST(LogLinearMamba2, IsMamba2WhenAllLevelsCountTheSame) {
  const LogLinearMamba2Options options{{2, 1, 32, 32, DType::kFloat32}, 7, 0.01, 0.2, 1.0, 1.0};
  LogLinearMamba2Subject subject(options);
  const auto plain = MakeMamba2Subject(options.shape, options.slowest, options.fastest);
  CheckSameAsPlain(subject, *plain);
}

TEST(LogLinearMamba2, ForksDecayTheirSharedPagesEachInItsOwnWay) {
  LogLinearMamba2Subject subject(
      LogLinearMamba2Options{{2, 1, 32, 32, DType::kFloat32}, 9, 0.01, 0.2});
  CheckForks(subject);
}

void RunFar(uint32_t levels, uint64_t tokens) {
  LogLinearMamba2Subject subject({{1, 1, 4, 3, DType::kFloat32}, levels, 1e-6, 2e-6});
  CheckFar(subject, levels, tokens, 1e-5,
           [&](ConstFloatMatrix inputs, uint64_t t) { return subject.ReferenceAt(inputs, t); });
}

TEST(LogLinearMamba2, AMillionTokensFillAllButTheLastLevel) { RunFar(22, uint64_t{1} << 20); }
TEST(LogLinearMamba2, AMillionTokensFillEveryLevel) { RunFar(21, uint64_t{1} << 20); }
TEST(LogLinearMamba2, TheLastLevelHoldsWhatIsOlder) { RunFar(9, uint64_t{1} << 16); }

// --- the layer's choices -----------------------------------------------------------------------

// A layer with a tensor L of this shape.
absl::StatusOr<std::unique_ptr<Mixer>> Make(std::vector<size_t> shape_of_l, uint32_t max_levels = 0,
                                            LevelOverflow overflow = LevelOverflow::kError) {
  const Mamba2Config config{.heads = 2,
                            .head_dim = 16,
                            .state_size = 16,
                            .groups = 1,
                            .norm_groups = 1,
                            .log_linear = true,
                            .max_levels = max_levels};
  GeneratedParameters parameters({{"L", {std::move(shape_of_l)}}}, DType::kFloat32);
  return MakeLayer(config, {16, parameters, {.level_overflow = overflow}});
}

std::string ErrorOf(std::vector<size_t> shape_of_l, uint32_t max_levels = 0) {
  const auto mixer = Make(std::move(shape_of_l), max_levels);
  if (mixer.ok()) return "no error";
  EXPECT_EQ(mixer.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(mixer.status().message().data(), mixer.status().message().size());
}

TEST(LogLinearMamba2, LevelsSayHowLongASessionMayBe) {
  EXPECT_EQ((*Make({2, 15}))->max_tokens(), 16384u);
  EXPECT_EQ((*Make({2, 1}))->max_tokens(), 1u);
  EXPECT_EQ((*Make({2, 15}, 0, LevelOverflow::kClamp))->max_tokens(), UINT64_MAX);
  EXPECT_EQ((*Make({2, 15}))->state_layout().page_kind().levels, 10u);
  EXPECT_EQ((*Make({2, 15}))->state_layout().page_kind().rule, PageRule::kFenwick);
  EXPECT_EQ((*Make({2, 4}))->state_layout().page_kind().levels, 1u);
}

TEST(LogLinearMamba2, ErrorsNameKeyValueAndRemedy) {
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT(ErrorOf({2, 15}, 12),
              AllOf(HasSubstr("max_levels is 12"), HasSubstr("L has 15 levels")));
  EXPECT_THAT(ErrorOf({2, 65}), AllOf(HasSubstr("65 levels"), HasSubstr("1 to 64")));
  EXPECT_THAT(ErrorOf({30}), HasSubstr("tensor L has 1 dimensions"));
}

// in_proj has 2 · 32 + 2 · 16 + 2 rows before those of the levels.
TEST(LogLinearMamba2, NamesLWhenItsLevelsAreNotTheProjections) {
  const Mamba2Config config{.heads = 2,
                            .head_dim = 16,
                            .state_size = 16,
                            .groups = 1,
                            .norm_groups = 1,
                            .log_linear = true};
  const auto error = [&](size_t levels) {
    GeneratedParameters parameters({{"L", {{2, 14}}}, {"in_proj.weight", {{98 + 2 * levels, 16}}}},
                                   DType::kFloat32);
    const absl::Status status = MakeLayer(config, {16, parameters, {}}).status();
    return std::string(status.message().data(), status.message().size());
  };
  EXPECT_EQ(error(14), "");
  EXPECT_THAT(error(15), testing::AllOf(testing::HasSubstr("tensor L has 14 levels"),
                                        testing::HasSubstr("in_proj.weight computes 15")));
}

}  // namespace
}  // namespace rivulet
