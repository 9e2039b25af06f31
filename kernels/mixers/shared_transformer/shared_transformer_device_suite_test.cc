// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/mixer_suite_on_device.h"
#include "kernels/mixers/shared_transformer/shared_transformer_config.h"

namespace rivulet {
namespace {

constexpr size_t kHidden = 32;

// The suite's rows are as wide as what comes out: the input is taken as stream and embeddings
// alike, as the suite's step has it.
class OnItsOwnStream : public Mixer {
 public:
  explicit OnItsOwnStream(std::unique_ptr<Mixer> mixer) : mixer_(std::move(mixer)) {}
  const StateLayout& state_layout() const override { return mixer_->state_layout(); }
  bool runs_on_device() const override { return mixer_->runs_on_device(); }
  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const FloatMatrix both = step.workspace->Take(x.rows, 2 * kHidden);
    for (size_t t = 0; t < x.rows; ++t) {
      std::copy_n(x.row(t), kHidden, both.row(t));
      std::copy_n(x.row(t), kHidden, both.row(t) + kHidden);
    }
    return mixer_->Forward(step, both, y);
  }
  void Enqueue(const DeviceStep& step, const Operand& /*x*/, FloatMatrix y) const override {
    mixer_->Enqueue(step, {}, y);
  }

 private:
  std::unique_ptr<Mixer> mixer_;
};

SharedTransformerConfig Config(size_t head_dim, size_t adapter_rank) {
  SharedTransformerConfig config;
  config.shared = "shared.";
  config.attention = {.heads = 2,
                      .kv_heads = 2,
                      .head_dim = head_dim,
                      .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                      .inputs = 2 * kHidden,
                      .adapter_rank = adapter_rank};
  config.mamba = {.heads = 2, .head_dim = 16, .state_size = 8, .groups = 1, .norm_groups = 1};
  config.intermediate = 24;
  config.adapter_rank = adapter_rank;
  return config;
}

// Where products are bf16: four norms come one after the other, with products between them. On the
// fake device with operands of products rounded to bf16 the layers are 0.02 and 0.034 off.
constexpr double kFourNorms = 0.1;

DeviceCase Layer(std::string name, size_t head_dim, size_t adapter_rank) {
  const SharedTransformerConfig config = Config(head_dim, adapter_rank);
  const auto make = [=](const MixerSource& source) -> absl::StatusOr<std::unique_ptr<Mixer>> {
    absl::StatusOr<std::unique_ptr<Mixer>> mixer = MakeLayer(config, source);
    if (!mixer.ok()) return mixer.status();
    return std::make_unique<OnItsOwnStream>(*std::move(mixer));
  };
  // Steps so small that the skip is the most of what Mamba-2 gives: with large ones, outputs of few
  // channels that are normed together change with the rounding of what comes before.
  const RandomTensors::Ranges ranges = {{"mamba_decoder.mamba.dt_bias", {-5.0f, -3.0f}}};
  const DeviceCase one{std::move(name), [=](DType state) {
                         return std::make_unique<RandomLayerSubject>(
                             make, RandomLayerSubject::Options{kHidden, ranges, state});
                       }};
  return Rounded(one, kFourNorms);
}

std::vector<DeviceCase> Cases() {
  return {Everywhere(Layer("layer_d16", 16, 0)), Layer("layer_d64_adapted", 64, 3)};
}

INSTANTIATE_TEST_SUITE_P(SharedTransformer, DeviceMixerSuite, testing::ValuesIn(OnDevices(Cases())),
                         DeviceCaseName);

}  // namespace
}  // namespace rivulet
