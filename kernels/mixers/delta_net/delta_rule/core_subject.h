// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The delta rule's recurrence without its layer, as a subject of the mixer suite: columns
// q | k | v | beta | log_decay. For tests and benchmarks only.
#ifndef RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_CORE_SUBJECT_H_
#define RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_CORE_SUBJECT_H_

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/delta_net/delta_rule/delta_rule_recurrence.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_reference.h"
#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {

class DeltaRuleSubject : public SuiteSubject {
 public:
  // β is drawn from [0, beta), log decays from [lowest, 0). Keys have squares that sum to one on
  // average, as normed keys do: I - β kᵀk must not grow.
  DeltaRuleSubject(const DeltaRuleShape& shape, double beta, double lowest)
      : recurrence_(shape, layout_), beta_(beta), lowest_(lowest) {}

  std::vector<InputField> fields() const override {
    const DeltaRuleShape& s = shape();
    const double key = std::sqrt(3.0 / static_cast<double>(s.key_dim));
    std::vector<InputField> fields = {
        {"q", 0, s.key_heads, s.key_dim, s.padded_key(), -1.0, 1.0},
        {"k", key_columns(), s.key_heads, s.key_dim, s.padded_key(), -key, key},
        {"v", 2 * key_columns(), s.value_heads, s.value_dim, s.padded_value(), -1.0, 1.0},
        {"beta", beta_column(), 1, s.value_heads, head_columns(), 0.0, beta_}};
    if (s.decays) {
      fields.push_back(
          {"log_decay", decay_column(), 1, s.value_heads, head_columns(), lowest_, 0.0});
    }
    return fields;
  }
  size_t input_columns() const override { return decay_column() + head_columns(); }
  size_t output_columns() const override { return shape().value_heads * shape().padded_value(); }
  const StateLayout& layout() const override { return layout_; }
  double tolerance() const override { return shape().state_dtype == DType::kFloat32 ? 1e-5 : 2e-2; }
  void Run(std::span<const Segment> segments, const LayerState& state, ConstFloatMatrix inputs,
           FloatMatrix outputs, ThreadPool& pool) override {
    recurrence_.Run(segments, state, Split(inputs), outputs, pool);
  }
  std::vector<double> Reference(ConstFloatMatrix inputs) const override {
    return DeltaRuleReference(shape(), Split(inputs));
  }

  // The recurrence's input in a row's columns, which others may follow.
  DeltaRuleInput Split(ConstFloatMatrix x) const {
    return {x.Columns(0, key_columns()), x.Columns(key_columns(), key_columns()),
            x.Columns(2 * key_columns(), output_columns()),
            x.Columns(beta_column(), shape().value_heads),
            x.Columns(decay_column(), shape().value_heads)};
  }

 private:
  const DeltaRuleShape& shape() const { return recurrence_.shape(); }
  size_t key_columns() const { return shape().key_heads * shape().padded_key(); }
  size_t head_columns() const { return PaddedColumns(shape().value_heads); }
  size_t beta_column() const { return 2 * key_columns() + output_columns(); }
  size_t decay_column() const { return beta_column() + head_columns(); }

  StateLayout layout_;
  DeltaRuleRecurrence recurrence_;
  double beta_, lowest_;
};

inline SuiteCase DeltaRuleCase(std::string name, const DeltaRuleShape& shape, double beta,
                               double lowest = 0.0) {
  return {std::move(name), [shape, beta, lowest] {
            return std::make_unique<DeltaRuleSubject>(shape, beta, lowest);
          }};
}

// The subject of a vectors file's core entry.
inline std::unique_ptr<SuiteSubject> MakeDeltaRuleSubject(const nlohmann::json& p) {
  const DeltaRuleShape shape{p.at("key_heads"), p.at("value_heads"),        p.at("key_dim"),
                             p.at("value_dim"), p.value("lowest", 0.0) < 0, DType::kFloat32};
  return std::make_unique<DeltaRuleSubject>(shape, p.at("beta"), p.value("lowest", 0.0));
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_CORE_SUBJECT_H_
