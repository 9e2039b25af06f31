// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A higher-order recurrence without its layer, as a subject of the mixer suite: padded q, k, v in,
// o out, and an fp64 reference of one query head. For tests only.
#ifndef RIVULET_KERNELS_MIXERS_HLA_HIGHER_ORDER_CORE_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_HLA_HIGHER_ORDER_CORE_SUBJECT_H_

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/mixers/hla/higher_order/higher_order.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {

// What a case is made of; the "parameters" of a core entry in a vectors file.
struct CoreParameters {
  std::string form = "masked";
  HigherOrderShape shape;
  std::vector<float> decay_logit;  // [H], or empty without decay
  double ridge_lambda = 0.0;
  double low = -1.0, high = 1.0;  // range of q and k; v is in [-1, 1)
  double tolerance = 1e-5;
};

inline CoreParameters ParseCoreParameters(const nlohmann::json& json) {
  CoreParameters result;
  result.form = json.value("form", result.form);
  result.shape.heads = json.at("heads").get<size_t>();
  result.shape.kv_heads = json.value("kv_heads", result.shape.heads);
  result.shape.key_dim = json.at("key_dim").get<size_t>();
  result.shape.value_dim = json.at("value_dim").get<size_t>();
  result.shape.normalize = json.value("normalize", false);
  if (json.value("bf16", false)) result.shape.state_dtype = DType::kBFloat16;
  result.decay_logit = json.value("decay_logit", std::vector<float>());
  result.ridge_lambda = json.value("ridge_lambda", 0.0);
  result.low = json.value("low", result.low);
  result.high = json.value("high", result.high);
  result.tolerance = json.value("tolerance", result.tolerance);
  return result;
}

class CoreSubject : public SuiteSubject {
 public:
  explicit CoreSubject(CoreParameters parameters) : parameters_(std::move(parameters)) {}

  std::vector<InputField> fields() const override {
    const HigherOrderShape& s = parameters_.shape;
    const double low = parameters_.low, high = parameters_.high;
    return {{"q", 0, s.heads, s.key_dim, s.padded_key(), low, high},
            {"k", k_column(), s.kv_heads, s.key_dim, s.padded_key(), low, high},
            {"v", v_column(), s.kv_heads, s.value_dim, s.padded_value(), -1.0, 1.0}};
  }
  size_t input_columns() const override {
    return v_column() + parameters_.shape.kv_heads * parameters_.shape.padded_value();
  }
  size_t output_columns() const override {
    return parameters_.shape.heads * parameters_.shape.padded_value();
  }
  const StateLayout& layout() const override { return layout_; }
  double tolerance() const override { return parameters_.tolerance; }

  void Run(std::span<const Segment> segments, const LayerState& state, ConstFloatMatrix inputs,
           FloatMatrix outputs, ThreadPool& pool) override {
    const HigherOrderShape& s = parameters_.shape;
    workspace_.Reset();
    const HigherOrderInput input{inputs.Columns(0, k_column()),
                                 inputs.Columns(k_column(), v_column() - k_column()),
                                 inputs.Columns(v_column(), s.kv_heads * s.padded_value())};
    recurrence_->Run({segments, state, &workspace_, &pool}, input, outputs);
  }

  std::vector<double> Reference(ConstFloatMatrix inputs) const override {
    const HigherOrderShape& s = parameters_.shape;
    std::vector<double> out(inputs.rows * output_columns());
    for (size_t h = 0; h < s.heads; ++h) {
      const size_t j = h / s.group();
      const std::vector<double> head =
          HeadReference(h, Gather(inputs, h * s.padded_key(), s.key_dim),
                        Gather(inputs, k_column() + j * s.padded_key(), s.key_dim),
                        Gather(inputs, v_column() + j * s.padded_value(), s.value_dim));
      for (size_t i = 0; i < head.size(); ++i) {
        out[i / s.value_dim * output_columns() + h * s.padded_value() + i % s.value_dim] = head[i];
      }
    }
    return out;
  }

 protected:
  // [T, E] of one query head from q, k [T, D] and v [T, E].
  virtual std::vector<double> HeadReference(size_t head, std::vector<double> q,
                                            std::vector<double> k, std::vector<double> v) const = 0;

  double Gamma(size_t head) const {
    if (parameters_.decay_logit.empty()) return 1.0;
    return 1.0 / (1.0 + std::exp(-static_cast<double>(parameters_.decay_logit[head])));
  }
  DecayTable MakeDecay() const {
    if (parameters_.decay_logit.empty()) return {};
    AlignedBuffer<float> logits(parameters_.decay_logit.size());
    for (size_t h = 0; h < logits.size(); ++h) logits[h] = parameters_.decay_logit[h];
    return DecayTable(logits);
  }

  CoreParameters parameters_;
  StateLayout layout_;
  std::unique_ptr<HigherOrderRecurrence> recurrence_;  // made by the derived class

 private:
  size_t k_column() const { return parameters_.shape.heads * parameters_.shape.padded_key(); }
  size_t v_column() const {
    return k_column() + parameters_.shape.kv_heads * parameters_.shape.padded_key();
  }
  static std::vector<double> Gather(ConstFloatMatrix inputs, size_t column, size_t width) {
    std::vector<double> out;
    for (size_t t = 0; t < inputs.rows; ++t) {
      out.insert(out.end(), inputs.row(t) + column, inputs.row(t) + column + width);
    }
    return out;
  }

  Workspace workspace_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_HLA_HIGHER_ORDER_CORE_SUBJECT_H_
