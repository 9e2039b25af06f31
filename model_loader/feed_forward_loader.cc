// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/ops/channel_mixing/channel_mixing.h"
#include "kernels/ops/gated_mlp/gated_mlp.h"
#include "kernels/ops/mixture_of_experts/device_experts.h"
#include "kernels/ops/mixture_of_experts/mixture_of_experts.h"
#include "kernels/ops/two_layer_mlp/two_layer_mlp.h"
#include "model_loader/formats.h"
#include "model_loader/loaded_model.h"

namespace rivulet {
namespace {

LinearPart Part(const std::string& map, size_t outputs, bool bias) {
  return {map + ".weight", outputs, bias ? map + ".bias" : ""};
}

// gate and up as one map. Files of fla before 2025-02-09 hold both in gate_proj
// (docs/mixers.md#names-and-blocks).
Linear TakeGateUp(const GatedMlpSpec& spec, size_t hidden, ParameterSource& parameters) {
  const LinearPart both = Part(spec.gate, 2 * spec.intermediate, spec.bias);
  if (spec.up.empty()) return parameters.TakeLinear({both}, hidden);
  const LinearPart up = Part(spec.up, spec.intermediate, spec.bias);
  const std::vector<size_t> fused = {both.outputs, hidden};
  if (!parameters.Has(up.name) && parameters.Shape(both.name) == fused) {
    return parameters.TakeLinear({both}, hidden);
  }
  return parameters.TakeLinear({Part(spec.gate, spec.intermediate, spec.bias), up}, hidden);
}

// `spec` by the names that the file has.
GatedMlpSpec NamedAsInFile(const GatedMlpSpec& spec, const ParameterSource& parameters) {
  if (spec.other_prefix.empty() || parameters.Has(spec.gate + ".weight")) return spec;
  GatedMlpSpec named = NameGatedMlp(spec.other_prefix, spec.intermediate);
  if (!parameters.Has(named.gate + ".weight")) return spec;
  named.bias = spec.bias;
  named.form = spec.form;
  return named;
}

GatedMlp TakeGatedMlp(const GatedMlpSpec& given, size_t hidden, ParameterSource& parameters) {
  const GatedMlpSpec spec = NamedAsInFile(given, parameters);
  Linear gate_up = TakeGateUp(spec, hidden, parameters);
  return {std::move(gate_up),
          parameters.TakeLinear({Part(spec.down, hidden, spec.bias)}, spec.intermediate),
          spec.form};
}

TwoLayerMlp TakeTwoLayerMlp(const TwoLayerMlpSpec& spec, size_t hidden,
                            ParameterSource& parameters) {
  Linear first = parameters.TakeLinear({Part(spec.first, spec.intermediate, spec.bias)}, hidden);
  Linear second = parameters.TakeLinear({Part(spec.second, hidden, spec.bias)}, spec.intermediate);
  return {std::move(first), std::move(second), spec.f};
}

// The first name that the file has; the first one of all, to be reported, where it has none.
const std::string& FirstThere(const std::vector<std::string>& names, const char* suffix,
                              const ParameterSource& parameters) {
  for (const std::string& name : names) {
    if (parameters.Has(name + suffix)) return name;
  }
  return names.front();
}

// The parts of the maps of one expert or of several, in order.
struct ExpertParts {
  std::vector<LinearPart> gate_up, down;
};

// The numbers that an expert reads and writes.
size_t ExpertInputs(const MixtureOfExpertsSpec& spec, size_t hidden) {
  return spec.latent > 0 ? spec.latent : hidden;
}

void AppendExpert(const MixtureOfExpertsSpec& spec, size_t expert, size_t hidden,
                  const ParameterSource& parameters, ExpertParts& parts) {
  const std::string& gate_up = FirstThere(spec.gate_up, "", parameters);
  const std::string& down = FirstThere(spec.down, "", parameters);
  const size_t inputs = ExpertInputs(spec, hidden), maps = spec.gated ? 2 : 1;
  if (!parameters.Has(gate_up) && !spec.expert_list.empty()) {
    const std::string list = absl::StrCat(spec.expert_list, expert, ".");
    const ExpertNames& names = spec.expert_names;
    if (spec.gated) parts.gate_up.push_back(Part(list + names.gate, spec.intermediate, false));
    parts.gate_up.push_back(Part(list + names.up, spec.intermediate, false));
    parts.down.push_back(Part(list + names.down, inputs, false));
    return;
  }
  parts.gate_up.push_back({gate_up, maps * spec.intermediate, "", spec.choice.experts, expert});
  parts.down.push_back({down, inputs, "", spec.choice.experts, expert});
}

std::vector<ExpertMaps> TakeExperts(const MixtureOfExpertsSpec& spec, size_t hidden,
                                    ParameterSource& parameters) {
  std::vector<ExpertMaps> experts;
  for (size_t e = 0; e < spec.choice.experts; ++e) {
    ExpertParts parts;
    AppendExpert(spec, e, hidden, parameters, parts);
    Linear in = parameters.TakeLinear(parts.gate_up, ExpertInputs(spec, hidden));
    experts.push_back({std::move(in), parameters.TakeLinear(parts.down, spec.intermediate)});
  }
  return experts;
}

// The MLP of all tokens; null without one.
std::unique_ptr<FeedForward> TakeShared(const MixtureOfExpertsSpec& spec, size_t hidden,
                                        ParameterSource& parameters) {
  if (const auto* gated = std::get_if<GatedMlpSpec>(&spec.shared)) {
    return std::make_unique<GatedMlp>(TakeGatedMlp(*gated, hidden, parameters));
  }
  if (const auto* plain = std::get_if<TwoLayerMlpSpec>(&spec.shared)) {
    return std::make_unique<TwoLayerMlp>(TakeTwoLayerMlp(*plain, hidden, parameters));
  }
  return nullptr;
}

// The gate of the shared expert is one more output of the router's map.
Linear TakeRouter(const MixtureOfExpertsSpec& spec, size_t hidden, ParameterSource& parameters) {
  const std::string& router = FirstThere(spec.router, ".weight", parameters);
  std::vector<LinearPart> parts = {Part(router, spec.choice.experts, false)};
  if (!spec.shared_gate.empty()) parts.push_back(Part(spec.shared_gate, 1, false));
  return parameters.TakeRouter(parts, hidden);
}

// What a mixture has beside its experts' maps, in the parts of either device.
template <typename Parts>
void TakeRest(const MixtureOfExpertsSpec& spec, size_t hidden, ParameterSource& parameters,
              Parts& parts) {
  parts.gated = spec.gated;
  parts.f = spec.f;
  parts.limit = spec.limit;
  parts.shared = TakeShared(spec, hidden, parameters);
  if (spec.latent == 0) return;
  parts.latent_down =
      parameters.TakeLinear({Part(spec.latent_down, spec.latent, spec.latent_bias)}, hidden);
  parts.latent_up =
      parameters.TakeLinear({Part(spec.latent_up, hidden, spec.latent_bias)}, spec.latent);
}

AlignedBuffer<float> TakeCorrection(const MixtureOfExpertsSpec& spec, ParameterSource& parameters) {
  if (spec.correction.empty()) return {};
  return parameters.TakeVector(spec.correction, {spec.choice.experts});
}

std::unique_ptr<FeedForward> TakeMixture(const MixtureOfExpertsSpec& spec, size_t hidden,
                                         ParameterSource& parameters) {
  MixtureParts parts{.choice = spec.choice, .router = TakeRouter(spec, hidden, parameters)};
  parts.correction = TakeCorrection(spec, parameters);
  parts.experts = TakeExperts(spec, hidden, parameters);
  TakeRest(spec, hidden, parameters, parts);
  return std::make_unique<MixtureOfExperts>(std::move(parts));
}

// A device wants all experts' maps as one.
std::unique_ptr<FeedForward> TakeDeviceMixture(const MixtureOfExpertsSpec& spec, size_t hidden,
                                               ParameterSource& parameters) {
  DeviceMixtureParts parts{.choice = spec.choice, .router = TakeRouter(spec, hidden, parameters)};
  parts.correction = TakeCorrection(spec, parameters);
  ExpertParts maps;
  for (size_t e = 0; e < spec.choice.experts; ++e) AppendExpert(spec, e, hidden, parameters, maps);
  parts.in = parameters.TakeLinear(maps.gate_up, ExpertInputs(spec, hidden));
  parts.out = parameters.TakeLinear(maps.down, spec.intermediate);
  TakeRest(spec, hidden, parameters, parts);
  return std::make_unique<DeviceExperts>(std::move(parts));
}

// Makes the block of each kind of spec.
struct Taker {
  size_t hidden;
  const MixerOptions& options;
  ParameterSource& parameters;

  std::unique_ptr<FeedForward> operator()(std::monostate /*none*/) const { return nullptr; }

  std::unique_ptr<FeedForward> operator()(const GatedMlpSpec& spec) const {
    return std::make_unique<GatedMlp>(TakeGatedMlp(spec, hidden, parameters));
  }

  std::unique_ptr<FeedForward> operator()(const TwoLayerMlpSpec& spec) const {
    return std::make_unique<TwoLayerMlp>(TakeTwoLayerMlp(spec, hidden, parameters));
  }

  std::unique_ptr<FeedForward> operator()(const MixtureOfExpertsSpec& spec) const {
    return parameters.packs_on_device() ? TakeDeviceMixture(spec, hidden, parameters)
                                        : TakeMixture(spec, hidden, parameters);
  }

  std::unique_ptr<FeedForward> operator()(const ChannelMixingSpec& spec) const {
    AlignedBuffer<float> mix = parameters.TakeVector(spec.mix, {hidden});
    Linear key = parameters.TakeLinear({Part(spec.key, spec.intermediate, false)}, hidden);
    Linear value = parameters.TakeLinear({Part(spec.value, hidden, false)}, spec.intermediate);
    std::optional<ChannelMixing::Gate> gate;
    if (!spec.receptance.empty()) {
      gate = {parameters.TakeVector(spec.gate_mix, {hidden}),
              parameters.TakeLinear({Part(spec.receptance, hidden, false)}, hidden)};
    }
    return std::make_unique<ChannelMixing>(std::move(mix), std::move(key), std::move(value),
                                           std::move(gate), spec.f, options.NewLayout());
  }
};

}  // namespace

std::unique_ptr<FeedForward> TakeFeedForward(const FeedForwardSpec& spec, size_t hidden,
                                             const MixerOptions& options,
                                             ParameterSource& parameters) {
  return std::visit(Taker{hidden, options, parameters}, spec);
}

}  // namespace rivulet
