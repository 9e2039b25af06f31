// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
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

GatedMlp TakeGatedMlp(const GatedMlpSpec& spec, size_t hidden, ParameterSource& parameters) {
  Linear gate_up = TakeGateUp(spec, hidden, parameters);
  return {std::move(gate_up),
          parameters.TakeLinear({Part(spec.down, hidden, spec.bias)}, spec.intermediate)};
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

void AppendExpert(const MixtureOfExpertsSpec& spec, size_t expert, size_t hidden,
                  const ParameterSource& parameters, ExpertParts& parts) {
  const std::string& gate_up = FirstThere(spec.gate_up, "", parameters);
  const std::string& down = FirstThere(spec.down, "", parameters);
  if (!parameters.Has(gate_up) && !spec.expert_list.empty()) {
    const std::string map = absl::StrCat(spec.expert_list, expert, ".");
    const GatedMlpSpec mlp = NameGatedMlp(map, spec.intermediate);
    parts.gate_up.push_back(Part(mlp.gate, mlp.intermediate, false));
    parts.gate_up.push_back(Part(mlp.up, mlp.intermediate, false));
    parts.down.push_back(Part(mlp.down, hidden, false));
    return;
  }
  parts.gate_up.push_back({gate_up, 2 * spec.intermediate, "", spec.experts, expert});
  parts.down.push_back({down, hidden, "", spec.experts, expert});
}

std::vector<GatedMlp> TakeExperts(const MixtureOfExpertsSpec& spec, size_t hidden,
                                  ParameterSource& parameters) {
  std::vector<GatedMlp> experts;
  for (size_t e = 0; e < spec.experts; ++e) {
    ExpertParts parts;
    AppendExpert(spec, e, hidden, parameters, parts);
    Linear gate_up = parameters.TakeLinear(parts.gate_up, hidden);
    experts.emplace_back(std::move(gate_up), parameters.TakeLinear(parts.down, spec.intermediate));
  }
  return experts;
}

// A device wants all experts' maps as one.
std::unique_ptr<FeedForward> TakeDeviceExperts(const MixtureOfExpertsSpec& spec, size_t hidden,
                                               const ExpertChoice& choice, Linear router,
                                               ParameterSource& parameters) {
  ExpertParts parts;
  for (size_t e = 0; e < spec.experts; ++e) AppendExpert(spec, e, hidden, parameters, parts);
  const Linear gate_up = parameters.TakeLinear(parts.gate_up, hidden);
  const Linear down = parameters.TakeLinear(parts.down, spec.intermediate);
  std::optional<GatedMlp> shared;
  if (spec.shared.intermediate > 0) shared = TakeGatedMlp(spec.shared, hidden, parameters);
  return std::make_unique<DeviceExperts>(choice, std::move(router), gate_up, down,
                                         std::move(shared));
}

// The gate of the shared expert is one more output of the router's map.
Linear TakeRouter(const MixtureOfExpertsSpec& spec, size_t hidden, ParameterSource& parameters) {
  const std::string& router = FirstThere(spec.router, ".weight", parameters);
  std::vector<LinearPart> parts = {Part(router, spec.experts, false)};
  if (!spec.shared_gate.empty()) parts.push_back(Part(spec.shared_gate, 1, false));
  return parameters.TakeLinear(parts, hidden);
}

// Makes the block of each kind of spec.
struct Taker {
  size_t hidden;
  ParameterSource& parameters;

  std::unique_ptr<FeedForward> operator()(std::monostate /*none*/) const { return nullptr; }

  std::unique_ptr<FeedForward> operator()(const GatedMlpSpec& spec) const {
    return std::make_unique<GatedMlp>(TakeGatedMlp(spec, hidden, parameters));
  }

  std::unique_ptr<FeedForward> operator()(const TwoLayerMlpSpec& spec) const {
    Linear first = parameters.TakeLinear({Part(spec.first, spec.intermediate, true)}, hidden);
    Linear second = parameters.TakeLinear({Part(spec.second, hidden, true)}, spec.intermediate);
    return std::make_unique<TwoLayerMlp>(std::move(first), std::move(second));
  }

  std::unique_ptr<FeedForward> operator()(const MixtureOfExpertsSpec& spec) const {
    const ExpertChoice choice{spec.experts, spec.experts_per_token, spec.weights_sum_to_one};
    Linear router = TakeRouter(spec, hidden, parameters);
    if (parameters.packs_on_device()) {
      return TakeDeviceExperts(spec, hidden, choice, std::move(router), parameters);
    }
    std::vector<GatedMlp> experts = TakeExperts(spec, hidden, parameters);
    std::optional<GatedMlp> shared;
    if (spec.shared.intermediate > 0) shared = TakeGatedMlp(spec.shared, hidden, parameters);
    return std::make_unique<MixtureOfExperts>(choice, std::move(router), std::move(experts),
                                              std::move(shared));
  }
};

}  // namespace

std::unique_ptr<FeedForward> TakeFeedForward(const FeedForwardSpec& spec, size_t hidden,
                                             ParameterSource& parameters) {
  return std::visit(Taker{hidden, parameters}, spec);
}

}  // namespace rivulet
