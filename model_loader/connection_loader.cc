// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <array>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "model_loader/loaded_model.h"

namespace rivulet {
namespace {

// Makes the connection of each kind of spec.
struct Taker {
  size_t hidden;
  ParameterSource& parameters;

  std::unique_ptr<HyperConnection> operator()(std::monostate /*none*/) const { return nullptr; }

  std::unique_ptr<HyperConnection> operator()(const SinkhornConnectionSpec& spec) const {
    const size_t weights = spec.form.weights();
    const AlignedBuffer<float> scales = parameters.TakeVector(spec.scales, {3});
    Linear map = parameters.TakeLinear({{spec.map, weights, ""}}, spec.form.streams * hidden);
    return std::make_unique<SinkhornConnection>(
        spec.form, std::move(map), parameters.TakeVector(spec.biases, {weights}),
        std::array<float, 3>{scales[0], scales[1], scales[2]});
  }

  std::unique_ptr<HyperConnection> operator()(const GatedConnectionSpec& spec) const {
    const size_t all = spec.form.streams * hidden;
    AlignedBuffer<float> norm = parameters.TakeVector(spec.norm, {all});
    for (size_t i = 0; i < all; ++i) norm[i] += 1.0f;
    std::vector<LinearPart> down = {{spec.down, spec.form.rank, ""}};
    if (spec.form.expands) down.push_back({spec.out, spec.form.streams, ""});
    Linear first = parameters.TakeLinear(down, all);
    return std::make_unique<GatedConnection>(
        spec.form, std::move(norm), std::move(first),
        parameters.TakeLinear({{spec.up, all, ""}}, spec.form.rank));
  }
};

}  // namespace

std::unique_ptr<HyperConnection> TakeConnection(const HyperConnectionSpec& spec, size_t hidden,
                                                ParameterSource& parameters) {
  return std::visit(Taker{hidden, parameters}, spec);
}

}  // namespace rivulet
