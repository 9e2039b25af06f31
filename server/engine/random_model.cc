// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/random_model.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/status.h"
#include "model_loader/feed_forward_loader.h"

namespace rivulet {
namespace {

// xorshift64*: good enough for noise, and fast enough for 100 M weights.
class Noise {
 public:
  Noise(uint64_t seed, std::string_view name) : state_(seed ^ 0x9E3779B97F4A7C15u) {
    for (char c : name) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    state_ |= 1;
  }
  // Uniform in [low, high).
  float Next(float low, float high) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    const uint64_t bits = state_ * 0x2545F4914F6CDD1Du;
    return low + (high - low) * static_cast<float>(bits >> 40) * 0x1p-24f;
  }

 private:
  uint64_t state_;
};

// Answers whatever is asked for, so it need not know what a mixer's tensors are called. Optional
// tensors are absent.
class RandomParameters : public ParameterSource {
 public:
  RandomParameters(uint64_t seed, std::string prefix, DType dtype)
      : seed_(seed), prefix_(std::move(prefix)), dtype_(dtype) {}

  bool Has(std::string_view) const override { return false; }
  std::vector<size_t> Shape(std::string_view) const override { return {}; }

  // Around one: right for norms, harmless for decays, gates and convolutions.
  AlignedBuffer<float> TakeVector(std::string_view name,
                                  const std::vector<size_t>& shape) override {
    size_t count = 1;
    for (size_t extent : shape) count *= extent;
    return Fill(name, count, 0.5f, 1.5f);
  }

  Linear TakeLinear(const std::vector<LinearPart>& parts, size_t inputs) override {
    const float bound = std::sqrt(3.0f / static_cast<float>(inputs));
    std::vector<AlignedBuffer<float>> weights, biases;
    std::vector<LinearSource> sources;
    for (const LinearPart& part : parts) {
      weights.push_back(Fill(part.name, part.outputs * inputs, -bound, bound));
      biases.push_back(part.bias.empty() ? AlignedBuffer<float>()
                                         : Fill(part.bias, part.outputs, -bound, bound));
      sources.push_back({weights.back().data(), DType::kFloat32, part.outputs,
                         part.bias.empty() ? nullptr : biases.back().data()});
    }
    return Linear::Pack(sources, inputs, dtype_);
  }

  uint64_t taken() const { return taken_; }

 private:
  AlignedBuffer<float> Fill(std::string_view name, size_t count, float low, float high) {
    Noise noise(seed_, prefix_ + std::string(name));
    AlignedBuffer<float> numbers(count);
    taken_ += count;
    for (size_t i = 0; i < count; ++i) numbers[i] = noise.Next(low, high);
    return numbers;
  }

  uint64_t seed_;
  std::string prefix_;
  DType dtype_;
  uint64_t taken_ = 0;
};

struct RandomModel {
  LoadedModel model;
  AlignedBuffer<float> table;  // what model.embeddings points to
};

absl::StatusOr<LoadedLayer> MakeLayer(const LayerSpec& spec, const ModelSpec& model, uint64_t seed,
                                      DType dtype, const MixerOptions& options,
                                      uint64_t& parameters) {
  LoadedLayer layer;
  layer.mixer_type = spec.mixer_type;
  RandomParameters mixer(seed, spec.mixer_prefix, dtype);
  RIVULET_ASSIGN_OR_RETURN(const MixerFactory make, FindMixer(spec.mixer_type));
  RIVULET_ASSIGN_OR_RETURN(layer.mixer, make({spec.mixer_config, model.hidden, mixer, options}));
  RandomParameters own(seed, "", dtype);
  layer.mixer_norm = TakeNorm(spec.mixer_norm, model.hidden, model.norm_eps, own);
  if (!spec.feed_forward_norm.empty()) {
    layer.feed_forward_norm = TakeNorm(spec.feed_forward_norm, model.hidden, model.norm_eps, own);
    layer.feed_forward = TakeFeedForward(spec.feed_forward, model.hidden, own);
  }
  parameters += mixer.taken() + own.taken();
  return layer;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const LoadedModel>> MakeRandomModel(const nlohmann::json& config,
                                                                   uint64_t seed,
                                                                   const LoadOptions& options) {
  auto random = std::make_shared<RandomModel>();
  LoadedModel& model = random->model;
  RIVULET_ASSIGN_OR_RETURN(model.spec, ParseModelSpec(config));
  model.name = "random";
  model.weight_dtype = options.weight_dtype.value_or(DType::kFloat32);
  model.state_dtype = options.mixer.state_dtype;
  const size_t hidden = model.spec.hidden, vocab = model.spec.vocab;
  for (const LayerSpec& spec : model.spec.layers) {
    RIVULET_ASSIGN_OR_RETURN(
        LoadedLayer layer,
        MakeLayer(spec, model.spec, seed, model.weight_dtype, options.mixer, model.parameters));
    model.layers.push_back(std::move(layer));
  }
  RandomParameters own(seed, "", model.weight_dtype);
  model.final_norm = TakeNorm(model.spec.final_norm, hidden, model.spec.norm_eps, own,
                              model.spec.logits_multiplier);
  model.lm_head = own.TakeLinear({{model.spec.lm_head, vocab, ""}}, hidden);
  const bool tied = model.spec.lm_head == model.spec.embeddings;
  model.parameters += own.taken() + (tied ? 0 : vocab * hidden);
  random->table = own.TakeVector(model.spec.embeddings, {vocab, hidden});
  for (size_t i = 0; i < random->table.size(); ++i) random->table[i] -= 1.0f;
  model.embeddings = {random->table.data(), DType::kFloat32, vocab, hidden,
                      model.spec.embedding_multiplier};
  return std::shared_ptr<const LoadedModel>(random, &model);
}

}  // namespace rivulet
