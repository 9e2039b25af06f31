// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// That it computes what transformers does: tests/parity (upstream_hf_zamba2*).
#include "gtest/gtest.h"
#include "kernels/mixers/mixer_suite.h"
#include "kernels/mixers/random_parameters.h"
#include "kernels/mixers/shared_transformer/shared_transformer_config.h"

namespace rivulet {
namespace {

constexpr size_t kHidden = 16;

SharedTransformerConfig Config(size_t adapter_rank) {
  SharedTransformerConfig config;
  config.shared = "model.layers.1.shared_transformer.";
  config.attention = {.heads = 2,
                      .kv_heads = 2,
                      .head_dim = 16,
                      .scale = 0.35f,
                      .inputs = 2 * kHidden,
                      .adapter_rank = adapter_rank};
  config.mamba = {.heads = 2, .head_dim = 16, .state_size = 8, .groups = 1, .norm_groups = 1};
  config.intermediate = 24;
  config.adapter_rank = adapter_rank;
  return config;
}

absl::StatusOr<std::unique_ptr<Mixer>> Make(size_t adapter_rank, RandomParameters& parameters) {
  MixerOptions options;
  options.fold_interval = SuiteFoldInterval();
  return MakeLayer(Config(adapter_rank), {kHidden, parameters, options});
}

// The suite's rows are as wide as what comes out: x is taken as stream and embeddings alike.
class OnItsOwnStream : public Mixer {
 public:
  explicit OnItsOwnStream(std::unique_ptr<Mixer> mixer) : mixer_(std::move(mixer)) {}
  const StateLayout& state_layout() const override { return mixer_->state_layout(); }
  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const FloatMatrix both = step.workspace->Take(x.rows, 2 * kHidden);
    for (size_t t = 0; t < x.rows; ++t) {
      for (size_t i = 0; i < kHidden; ++i) {
        both.row(t)[i] = x.row(t)[i];
        both.row(t)[kHidden + i] = -x.row(t)[i];
      }
    }
    return mixer_->Forward(step, both, y);
  }

 private:
  std::unique_ptr<Mixer> mixer_;
};

SuiteCase Case(std::string name, size_t adapter_rank) {
  return {std::move(name), [=] {
            RandomParameters parameters(3, "model.layers.1.", DType::kFloat32);
            auto mixer = Make(adapter_rank, parameters);
            EXPECT_TRUE(mixer.ok()) << mixer.status();
            return std::make_unique<LayerSubject>(
                std::make_unique<OnItsOwnStream>(*std::move(mixer)), kHidden);
          }};
}

INSTANTIATE_TEST_SUITE_P(SharedTransformer, MixerSuite,
                         testing::ValuesIn(BothIntervals({Case("plain", 0), Case("adapted", 3)})),
                         SuiteCaseName);

// The second layer takes its own maps and adapters alone.
TEST(SharedTransformer, SharesTheBlocksMaps) {
  RandomParameters parameters(3, "model.layers.1.", DType::kFloat32);
  ASSERT_TRUE(Make(3, parameters).ok());
  const uint64_t first = parameters.bytes();
  ASSERT_TRUE(Make(3, parameters).ok());
  const uint64_t second = parameters.bytes() - first;
  const uint64_t shared = sizeof(float) * (3 * 32 * 32 + 16 * 32 + 48 * 16 + 16 * 24);
  EXPECT_LE(second + shared, first);
}

}  // namespace
}  // namespace rivulet
