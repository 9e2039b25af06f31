// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/feed_forward_loader.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/ops/gated_mlp/gated_mlp.h"
#include "kernels/ops/two_layer_mlp/two_layer_mlp.h"

namespace rivulet {
namespace {

LinearPart Part(const std::string& map, size_t outputs, bool bias) {
  return {map + ".weight", outputs, bias ? map + ".bias" : ""};
}

// gate and up as one map. Files of fla before 2025-02-09 hold both in gate_proj (mixers.md 0.4).
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

// Makes the block of each kind of spec.
struct Taker {
  size_t hidden;
  ParameterSource& parameters;

  std::unique_ptr<FeedForward> operator()(std::monostate /*none*/) const { return nullptr; }

  std::unique_ptr<FeedForward> operator()(const GatedMlpSpec& spec) const {
    Linear gate_up = TakeGateUp(spec, hidden, parameters);
    Linear down = parameters.TakeLinear({Part(spec.down, hidden, spec.bias)}, spec.intermediate);
    return std::make_unique<GatedMlp>(std::move(gate_up), std::move(down));
  }

  std::unique_ptr<FeedForward> operator()(const TwoLayerMlpSpec& spec) const {
    Linear first = parameters.TakeLinear({Part(spec.first, spec.intermediate, true)}, hidden);
    Linear second = parameters.TakeLinear({Part(spec.second, hidden, true)}, spec.intermediate);
    return std::make_unique<TwoLayerMlp>(std::move(first), std::move(second));
  }
};

}  // namespace

std::unique_ptr<FeedForward> TakeFeedForward(const FeedForwardSpec& spec, size_t hidden,
                                             ParameterSource& parameters) {
  return std::visit(Taker{hidden, parameters}, spec);
}

}  // namespace rivulet
