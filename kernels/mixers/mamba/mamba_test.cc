// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0

#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

  StateLayout layout_{SuiteFoldInterval()};
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

INSTANTIATE_TEST_SUITE_P(Mamba, MixerSuite, testing::ValuesIn(BothIntervals(CoreCases())),
                         SuiteCaseName);

TEST(Mamba, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    return std::make_unique<CoreSubject>(MambaShape{p.at("channels"), p.at("state_size")},
                                         p.at("slowest"), p.at("fastest"));
  });
}

TEST(Mamba, StateIsTheRunningStateOnceInEachPart) {
  StateLayout layout;
  const MambaShape shape{33, 16};
  const MambaRecurrence recurrence(shape, MakeConstants(shape, 0.1, 1.0), layout);
  EXPECT_EQ(layout.base_bytes(), 48 * 16 * sizeof(float));
  EXPECT_EQ(layout.tail_bytes(), layout.base_bytes());
}

}  // namespace
}  // namespace rivulet
