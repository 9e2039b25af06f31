// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mamba/mamba.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/mixers/mamba/mamba_config.h"
#include "kernels/mixers/mamba/mamba_recurrence.h"
#include "kernels/mixers/mamba/mamba_reference.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/mamba/vectors/vectors.json";

// Decay rates A are drawn from [-fastest, -slowest).
MambaConstants MakeConstants(const MambaShape& shape, double slowest, double fastest) {
  MambaConstants constants{AlignedBuffer<float>(shape.channels * shape.state_size),
                           AlignedBuffer<float>(shape.channels)};
  for (size_t i = 0; i < constants.a.size(); ++i) {
    constants.a[i] = GeneratedFloat("A", 0, i, -fastest, -slowest);
  }
  for (size_t i = 0; i < constants.d.size(); ++i) {
    constants.d[i] = GeneratedFloat("D", 0, i, 0.5, 1.5);
  }
  return constants;
}

// The recurrence alone: columns x | dt | z | B | C, each starting on a block.
class CoreSubject : public SuiteSubject {
 public:
  CoreSubject(const MambaShape& shape, double slowest, double fastest)
      : constants_(MakeConstants(shape, slowest, fastest)),
        recurrence_(shape, constants_, layout_) {}

  std::vector<InputField> fields() const override {
    const size_t i = shape().channels, n = shape().state_size;
    return {{"x", 0, 1, i, i, -1.0, 1.0},
            {"dt", width(), 1, i, i, -5.0, 1.0},
            {"z", 2 * width(), 1, i, i, -2.0, 2.0},
            {"B", 3 * width(), 1, n, n, -1.0, 1.0},
            {"C", 3 * width() + PaddedColumns(n), 1, n, n, -1.0, 1.0}};
  }
  size_t input_columns() const override {
    return 3 * width() + 2 * PaddedColumns(shape().state_size);
  }
  size_t output_columns() const override { return shape().channels; }
  const StateLayout& layout() const override { return layout_; }
  void Run(std::span<const Segment> segments, const LayerState& state, ConstFloatMatrix inputs,
           FloatMatrix outputs, ThreadPool& pool) override {
    recurrence_.Run(segments, state, Split(inputs), outputs, pool);
  }
  std::vector<double> Reference(ConstFloatMatrix inputs) const override {
    return MambaReference(shape(), constants_, Split(inputs));
  }

 private:
  const MambaShape& shape() const { return recurrence_.shape(); }
  size_t width() const { return PaddedColumns(shape().channels); }
  MambaInput Split(ConstFloatMatrix x) const {
    const size_t i = shape().channels, n = shape().state_size;
    return {x.Columns(0, i), x.Columns(width(), i), x.Columns(2 * width(), i),
            x.Columns(3 * width(), n), x.Columns(3 * width() + PaddedColumns(n), n)};
  }

  StateLayout layout_;
  MambaConstants constants_;
  MambaRecurrence recurrence_;
};

SuiteCase Core(std::string name, const MambaShape& shape, double slowest, double fastest) {
  return {std::move(name), [=] { return std::make_unique<CoreSubject>(shape, slowest, fastest); }};
}

std::vector<SuiteCase> CoreCases() {
  return {Core("n1_i40", {40, 1}, 0.1, 1.0),
          Core("n8_i16", {16, 8}, 0.01, 1.0),
          Core("n8_i300_many_units", {300, 8}, 0.01, 16.0),
          Core("n16_i33", {33, 16}, 0.001, 0.1),
          Core("n16_i1", {1, 16}, 0.1, 16.0),
          Core("n24_i19", {19, 24}, 0.01, 1.0),
          Core("n64_i20", {20, 64}, 0.001, 1.0),
          Core("n256_i5", {5, 256}, 0.01, 0.3)};
}

INSTANTIATE_TEST_SUITE_P(Mamba, MixerSuite, testing::ValuesIn(CoreCases()), SuiteCaseName);
INSTANTIATE_TEST_SUITE_P(MambaLayer, MixerSuite, testing::ValuesIn(LayerCases(kVectors, MakeMamba)),
                         SuiteCaseName);

TEST(Mamba, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    return std::make_unique<CoreSubject>(MambaShape{p.at("channels"), p.at("state_size")},
                                         p.at("slowest"), p.at("fastest"));
  });
}

TEST(Mamba, LayerVectors) { CheckLayerVectors(kVectors, MakeMamba); }

TEST(Mamba, StateIsTheRunningStateOnceInEachPart) {
  StateLayout layout;
  const MambaShape shape{33, 16};
  const MambaRecurrence recurrence(shape, MakeConstants(shape, 0.1, 1.0), layout);
  EXPECT_EQ(layout.base_bytes(), 48 * 16 * sizeof(float));
  EXPECT_EQ(layout.tail_bytes(), layout.base_bytes());
}

TEST(Mamba, StateDtypeDoesNotReachTheState) {
  MixerOptions options;
  options.state_dtype = DType::kBFloat16;
  const auto mixer =
      MakeGeneratedLayer(ReadVectors(kVectors).at("layers")[0], MakeMamba, options, nullptr);
  ASSERT_TRUE(mixer.ok()) << mixer.status();
  for (const StatePlane& plane : (*mixer)->state_layout().planes()) {
    EXPECT_EQ(plane.dtype, DType::kFloat32) << plane.name;
  }
}

absl::StatusOr<MambaConfig> Parse(const char* json) {
  return ParseMambaConfig(nlohmann::json::parse(json, nullptr, false), 72);
}

// The message of the error that this config gives.
std::string ErrorOf(const char* json) {
  const auto config = Parse(json);
  if (config.ok()) return "no error";
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message().data(), config.status().message().size());
}

TEST(MambaConfig, Defaults) {
  const auto config = Parse(R"({"time_step_rank": "auto"})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->inner, 144u);
  EXPECT_EQ(config->state_size, 16u);
  EXPECT_EQ(config->rank, 5u);
  EXPECT_EQ(config->conv_kernel, 4u);
  EXPECT_FALSE(config->use_bias);
  EXPECT_TRUE(config->use_conv_bias);
  EXPECT_FALSE(config->use_scan_norms);
}

TEST(MambaConfig, TakesWhatIsGiven) {
  const auto config = Parse(R"({"expand": 1.5, "state_size": 8, "time_step_rank": 7,
      "conv_kernel": 3, "use_bias": true, "use_conv_bias": false, "mixer_rms_eps": 1e-6})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->inner, 108u);
  EXPECT_EQ(config->state_size, 8u);
  EXPECT_EQ(config->rank, 7u);
  EXPECT_EQ(config->conv_kernel, 3u);
  EXPECT_TRUE(config->use_bias);
  EXPECT_FALSE(config->use_conv_bias);
  EXPECT_TRUE(config->use_scan_norms);
  EXPECT_FLOAT_EQ(config->scan_norm_eps, 1e-6f);
}

TEST(MambaConfig, ErrorsNameKeyValueAndRemedy) {
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT(ErrorOf(R"({"state_size": 1024})"),
              AllOf(HasSubstr("state_size is 1024"), HasSubstr("from 1 to 512")));
  EXPECT_THAT(ErrorOf(R"({"expand": 1e30})"),
              AllOf(HasSubstr("expand is 1e+30"), HasSubstr("hidden_size 72")));
  EXPECT_THAT(ErrorOf(R"({"expand": -1})"), HasSubstr("expand is -1"));
  EXPECT_THAT(ErrorOf(R"({"time_step_rank": "automatic"})"),
              AllOf(HasSubstr("time_step_rank is \"automatic\""), HasSubstr("\"auto\"")));
  EXPECT_THAT(ErrorOf(R"({"time_step_rank": 0})"), HasSubstr("time_step_rank is 0"));
  EXPECT_THAT(ErrorOf(R"({"conv_kernel": 17})"), HasSubstr("conv_kernel is 17"));
  EXPECT_THAT(ErrorOf(R"({"use_bias": 1})"), HasSubstr("use_bias is 1"));
  EXPECT_THAT(ErrorOf(R"({"mixer_rms_eps": 0})"), HasSubstr("mixer_rms_eps is 0"));
  EXPECT_THAT(ErrorOf(R"({"hidden_act": "gelu"})"), HasSubstr("gelu"));
}

}  // namespace
}  // namespace rivulet
