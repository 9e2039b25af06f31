// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/hla/hla_subject.h"

#include <cmath>

#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

// [T, width] from column `first` on.
std::vector<double> Gather(ConstFloatMatrix rows, size_t first, size_t width) {
  std::vector<double> out;
  for (size_t t = 0; t < rows.rows; ++t) {
    out.insert(out.end(), rows.row(t) + first, rows.row(t) + first + width);
  }
  return out;
}

HeadSequence SequenceOf(const HlaParameters& parameters, const TokenInputs& inputs, size_t head) {
  const HeadShape& s = parameters.config.shape;
  const size_t kv_head = head / s.group();
  return {.tokens = inputs.q.rows,
          .key_dim = s.key_dim,
          .value_dim = s.value_dim,
          .q = Gather(inputs.q, head * s.padded_key(), s.key_dim),
          .k = Gather(inputs.k, kv_head * s.padded_key(), s.key_dim),
          .v = Gather(inputs.v, kv_head * s.padded_value(), s.value_dim),
          .gamma = parameters.log_gamma.empty() ? 1.0 : std::exp(parameters.log_gamma[head]),
          .normalize = parameters.config.normalize};
}

std::vector<double> AllHeads(const HlaParameters& parameters, const HeadReference& reference,
                             const TokenInputs& inputs) {
  const HeadShape& s = parameters.config.shape;
  const size_t columns = s.heads * s.padded_value();
  std::vector<double> out(inputs.q.rows * columns);
  for (size_t h = 0; h < s.heads; ++h) {
    const std::vector<double> head = reference(SequenceOf(parameters, inputs, h));
    for (size_t i = 0; i < head.size(); ++i) {
      out[i / s.value_dim * columns + h * s.padded_value() + i % s.value_dim] = head[i];
    }
  }
  return out;
}

}  // namespace

HlaParameters ParseHlaParameters(const nlohmann::json& json) {
  HlaParameters result;
  HeadShape& shape = result.config.shape;
  result.form = json.value("form", result.form);
  shape.heads = json.at("heads").get<size_t>();
  shape.groups = json.value("kv_heads", shape.heads);
  shape.key_dim = json.at("key_dim").get<size_t>();
  shape.value_dim = json.at("value_dim").get<size_t>();
  result.config.normalize = json.value("normalize", false);
  if (json.value("bf16", false)) shape.state_dtype = DType::kBFloat16;
  const std::vector<float> logits = json.value("decay_logit", std::vector<float>());
  AlignedBuffer<float> buffer(logits.size());
  for (size_t h = 0; h < logits.size(); ++h) buffer[h] = logits[h];
  result.log_gamma = LogDecays(buffer);
  result.config.ridge_lambda = static_cast<float>(json.value("ridge_lambda", 0.0));
  result.low = json.value("low", result.low);
  result.high = json.value("high", result.high);
  result.tolerance = json.value("tolerance", result.tolerance);
  return result;
}

std::unique_ptr<SuiteSubject> MakeHlaSubject(const HlaParameters& parameters,
                                             const HeadReference& reference) {
  DrawnInputs drawn;
  drawn.q.low = drawn.k.low = parameters.low;
  drawn.q.high = drawn.k.high = parameters.high;
  auto subject = std::make_unique<DeclaredSubject>(
      HlaDeclaration(parameters.config, parameters.log_gamma), drawn,
      [=](const TokenInputs& inputs) { return AllHeads(parameters, reference, inputs); });
  subject->error_bound = parameters.tolerance;
  return subject;
}

std::vector<double> WeighValues(const HeadSequence& input,
                                const std::function<std::vector<double>(size_t)>& weights_at) {
  const size_t width = input.value_dim;
  std::vector<double> out(input.tokens * width);
  for (size_t t = 0; t < input.tokens; ++t) {
    const std::vector<double> weights = weights_at(t);
    double denominator = input.denom_eps;
    for (size_t j = 0; j <= t; ++j) {
      denominator += weights[j];
      for (size_t c = 0; c < width; ++c) out[t * width + c] += weights[j] * input.v[j * width + c];
    }
    if (!input.normalize) continue;
    for (size_t c = 0; c < width; ++c) out[t * width + c] /= denominator;
  }
  return out;
}

std::vector<SuiteCase> HlaCases(const std::vector<std::pair<std::string, const char*>>& parameters,
                                std::unique_ptr<SuiteSubject> (*make)(const nlohmann::json&)) {
  std::vector<SuiteCase> result;
  result.reserve(parameters.size());
  for (const auto& [name, text] : parameters) {
    result.push_back({name, [make, text = text] { return make(nlohmann::json::parse(text)); }});
  }
  return result;
}

}  // namespace rivulet
