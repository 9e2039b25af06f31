// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/hla/hla_recurrence.h"

#include <cmath>

namespace rivulet {
namespace {

// -log(1 + e^{-x}), stable on both sides.
double LogSigmoid(double x) {
  return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x));
}

// A declaration with the rows k and v.
RecurrenceDeclaration KeysAndValues(const HigherOrderShape& shape,
                                    const std::vector<double>& log_gamma) {
  return {
      .shape = {shape.heads, shape.kv_heads, shape.key_dim, shape.value_dim, shape.state_dtype},
      .decay = {.kind = log_gamma.empty() ? Decay::kNone : Decay::kScalar, .constant = log_gamma},
      .rows = {{"k", shape.key_dim, {"k"}}, {"v", shape.value_dim, {"v"}}},
      .division = shape.normalize ? Division::kQuotient : Division::kNone,
      .denominator_eps = shape.denom_eps};
}

void DeclareMasked(const HigherOrderShape& shape, float ridge_lambda, RecurrenceDeclaration& d) {
  d.rows.push_back({"u", shape.key_dim});
  d.sums = {{"S", "k", "k"}, {"F", "u", "v", shape.normalize, 2.0f}};
  d.reads = {{"u", "S", "q"}, {"o", "F", "q"}};
  if (ridge_lambda == 0.0f) return;
  d.rows.push_back({"q", shape.key_dim, {"q"}});
  d.sums.push_back({"C", "q", "v", shape.normalize});
  d.reads.push_back({.to = "o", .sum = "C", .query = "q", .add = ridge_lambda});
}

// (U + λQ) C, and for the serial form less Q G. y_t = k_t C_{t-1} reads C as it was before token t:
// the paper's Algorithm 1 lists the update of C first, and would be wrong in place
// (docs/mixers.md#hla-errata).
void DeclareProduct(const HigherOrderShape& shape, bool serial, float ridge_lambda,
                    RecurrenceDeclaration& d) {
  d.rows.push_back({"q", shape.key_dim, {"q"}});
  d.sums = {{"S", "k", "k"}, {"C", "q", "v", shape.normalize}};
  d.reads = {{.to = "u", .sum = "S", .query = "q", .ridge = ridge_lambda}, {"o", "C", "u"}};
  if (!serial) return;
  d.rows.push_back({"y", shape.value_dim});
  d.sums.push_back({"G", "k", "y", shape.normalize});
  d.reads.push_back({.to = "y", .sum = "C", .query = "k", .strict = true});
  d.reads.push_back({.to = "o", .sum = "G", .query = "q", .add = -1.0f});
}

}  // namespace

std::vector<double> LogDecays(const AlignedBuffer<float>& logits) {
  std::vector<double> log_gamma;
  for (size_t h = 0; h < logits.size(); ++h) log_gamma.push_back(LogSigmoid(logits[h]));
  return log_gamma;
}

RecurrenceDeclaration HlaDeclaration(const HigherOrderShape& shape, HlaForm form,
                                     float ridge_lambda, const std::vector<double>& log_gamma) {
  RecurrenceDeclaration d = KeysAndValues(shape, log_gamma);
  if (form == HlaForm::kMasked) {
    DeclareMasked(shape, ridge_lambda, d);
  } else {
    DeclareProduct(shape, form == HlaForm::kSerial, ridge_lambda, d);
  }
  return d;
}

RecurrenceDeclaration AhlaDeclaration(const HigherOrderShape& shape,
                                      const std::vector<double>& log_gamma) {
  RecurrenceDeclaration d = KeysAndValues(shape, log_gamma);
  d.rows.push_back({"r", shape.value_dim});
  d.sums = {{"P", "k", "v", shape.normalize}, {"E", "k", "r", shape.normalize}};
  d.reads = {{"r", "P", "q"}, {"o", "E", "q"}};
  return d;
}

// S and P have the same keys and decay, and so are one matrix: its scores are computed once. A row
// [k | v] is key and value of the first sum, a row [u | r] those of the second.
RecurrenceDeclaration ThirdOrderDeclaration(const HigherOrderShape& shape,
                                            const std::vector<double>& log_gamma) {
  const size_t keys = shape.padded_key(), both = keys + shape.value_dim;
  RecurrenceDeclaration d = KeysAndValues(shape, log_gamma);
  d.rows = {{"kv", both, {"k", "v"}}, {"ur", both}};
  d.sums = {{"SP", "kv", "kv", shape.normalize}, {"F", "ur", "ur", shape.normalize, 3.0f, keys}};
  d.reads = {{"ur", "SP", "q"}, {"o", "F", "q"}};
  return d;
}

RecurrenceDeclaration PaperThirdOrderDeclaration(const HigherOrderShape& shape,
                                                 const std::vector<double>& log_gamma) {
  const size_t keys = shape.key_dim, values = shape.value_dim;
  const bool normalize = shape.normalize;
  RecurrenceDeclaration d = KeysAndValues(shape, log_gamma);
  d.rows.insert(d.rows.end(),
                {{"q", keys, {"q"}}, {"a2", keys}, {"a3", keys}, {"w1", values}, {"w2", values}});
  d.sums = {{"S", "k", "k"},
            {"SQ", "q", "q"},
            {"P", "k", "v", normalize},
            {"G1", "k", "w1", normalize},
            {"G2", "a2", "w2", normalize},
            {"G3", "a3", "v", normalize}};
  constexpr bool kStrict = true;
  d.reads = {{"u", "SQ", "k", kStrict},
             {"w1", "P", "u", kStrict},
             {"a2", "S", "q", kStrict},
             {"w2", "P", "q", kStrict},
             {"a3", "S", "u", kStrict},
             {"y", "S", "q"},
             {"z", "SQ", "y"},
             {"o", "P", "z"},
             {.to = "o", .sum = "G1", .query = "q", .add = -1.0f},
             {.to = "o", .sum = "G2", .query = "q", .add = -1.0f},
             {.to = "o", .sum = "G3", .query = "q", .add = -1.0f}};
  return d;
}

}  // namespace rivulet
