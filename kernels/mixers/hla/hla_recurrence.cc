// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The higher-order recurrences (docs/mixers.md#hla, #ahla, #third-order) as reads of decayed sums.
// With LA(queries, keys, values; sum, decay) the primitive of kernels/recurrence, [a | b] columns
// side by side, and ⁻ for a strict read, as of before the token:
//
//   HLA      U = LA(Q, K, K; S, γ)                                  rows u_t = q_t S_t
//     masked   o = LA(Q, U, V; F, γ²) + λ LA(Q, Q, V; C, γ)
//     serial   o = LA(U + λQ, Q, V; C, γ) - LA(Q, K, Y; G, γ)       Y = LA⁻(K, Q, V; C, γ)
//     none     o = LA(U + λQ, Q, V; C, γ)
//
//   AHLA     R = LA(Q, K, V; P, γ)        o = LA(Q, K, R; E, γ)
//
//   third order, masked
//            [U | R] = LA(Q, K, [K | V]; [S | P], γ)        o = LA(Q, U, R; F, γ³)
//
//   third order, paper: what Algorithm 3 of the HLA paper computes, which is not its Theorem 7.1
//            Y  = LA(Q, K, K; S)       Z = LA(Y, Q, Q; SQ)      numerator = LA(Z, K, V; P)
//            U  = LA⁻(K, Q, Q; SQ)
//            W1 = LA⁻(U, K, V; P)      A2 = LA⁻(Q, K, K; S)
//            W2 = LA⁻(Q, K, V; P)      A3 = LA⁻(U, K, K; S)
//            o  = numerator - LA(Q, K, W1; G1) - LA(Q, A2, W2; G2) - LA(Q, A3, V; G3)
//
// Normalisers are one more value column of C, F, G, of P and E, and of G1, G2 and G3.
//
// A sum over k and v alone is kept once a kv head without decay. With decay each query head has its
// own γ, and so its own sums. The paper adds G1, G2 and G3 up; here they are three matrices, since
// a fold takes one key and one value a token: that form is for weights that were trained with it,
// not for speed.
#include <cmath>

#include "kernels/mixers/hla/hla_config.h"

namespace rivulet {
namespace {

// -log(1 + e^{-x}), stable on both sides.
double LogSigmoid(double x) {
  return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x));
}

// The rows k and v, without sums.
RecurrenceDeclaration KeysAndValues(const HlaConfig& c, const std::vector<double>& log_gamma) {
  return {
      .shape = c.shape,
      .decay = {.kind = log_gamma.empty() ? Decay::kNone : Decay::kScalar, .constant = log_gamma},
      .rows = {{"k", c.shape.key_dim, {"k"}}, {"v", c.shape.value_dim, {"v"}}},
      .division = c.normalize ? Division::kQuotient : Division::kNone,
      .denominator_eps = c.denom_eps};
}

void DeclareMasked(const HlaConfig& c, RecurrenceDeclaration& d) {
  d.rows.push_back({"u", c.shape.key_dim});
  d.sums = {{"S", "k", "k"}, {"F", "u", "v", c.normalize, 2.0f}};
  d.reads = {{"u", "S", "q"}, {"o", "F", "q"}};
  if (c.ridge_lambda == 0.0f) return;
  d.rows.push_back({"q", c.shape.key_dim, {"q"}});
  d.sums.push_back({"C", "q", "v", c.normalize});
  d.reads.push_back({.to = "o", .sum = "C", .query = "q", .add = c.ridge_lambda});
}

// (U + λQ) C, and for the serial form less Q G. y_t = k_t C_{t-1} reads C as it was before token t:
// the paper's Algorithm 1 lists the update of C first, and would be wrong in place
// (docs/mixers.md#hla-errata).
void DeclareProduct(const HlaConfig& c, RecurrenceDeclaration& d) {
  d.rows.push_back({"q", c.shape.key_dim, {"q"}});
  d.sums = {{"S", "k", "k"}, {"C", "q", "v", c.normalize}};
  d.reads = {{.to = "u", .sum = "S", .query = "q", .ridge = c.ridge_lambda}, {"o", "C", "u"}};
  if (c.form != HlaForm::kSerial) return;
  d.rows.push_back({"y", c.shape.value_dim});
  d.sums.push_back({"G", "k", "y", c.normalize});
  d.reads.push_back({.to = "y", .sum = "C", .query = "k", .strict = true});
  d.reads.push_back({.to = "o", .sum = "G", .query = "q", .add = -1.0f});
}

void DeclareAhla(const HlaConfig& c, RecurrenceDeclaration& d) {
  d.rows.push_back({"r", c.shape.value_dim});
  d.sums = {{"P", "k", "v", c.normalize}, {"E", "k", "r", c.normalize}};
  d.reads = {{"r", "P", "q"}, {"o", "E", "q"}};
}

// S and P have the same keys and decay, and so are one matrix: its scores are computed once. A row
// [k | v] is key and value of the first sum, a row [u | r] those of the second.
void DeclareThirdOrder(const HlaConfig& c, RecurrenceDeclaration& d) {
  const size_t keys = c.shape.padded_key(), both = keys + c.shape.value_dim;
  d.rows = {{"kv", both, {"k", "v"}}, {"ur", both}};
  d.sums = {{"SP", "kv", "kv", c.normalize}, {"F", "ur", "ur", c.normalize, 3.0f, keys}};
  d.reads = {{"ur", "SP", "q"}, {"o", "F", "q"}};
}

void DeclarePaperThirdOrder(const HlaConfig& c, RecurrenceDeclaration& d) {
  const size_t keys = c.shape.key_dim, values = c.shape.value_dim;
  d.rows.insert(d.rows.end(),
                {{"q", keys, {"q"}}, {"a2", keys}, {"a3", keys}, {"w1", values}, {"w2", values}});
  d.sums = {{"S", "k", "k"},
            {"SQ", "q", "q"},
            {"P", "k", "v", c.normalize},
            {"G1", "k", "w1", c.normalize},
            {"G2", "a2", "w2", c.normalize},
            {"G3", "a3", "v", c.normalize}};
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
}

}  // namespace

std::vector<double> LogDecays(const AlignedBuffer<float>& logits) {
  std::vector<double> log_gamma;
  for (size_t h = 0; h < logits.size(); ++h) log_gamma.push_back(LogSigmoid(logits[h]));
  return log_gamma;
}

RecurrenceDeclaration HlaDeclaration(const HlaConfig& config,
                                     const std::vector<double>& log_gamma) {
  RecurrenceDeclaration declaration = KeysAndValues(config, log_gamma);
  if (config.variant == HlaVariant::kAsymmetric) {
    DeclareAhla(config, declaration);
  } else if (config.variant == HlaVariant::kThird) {
    const bool paper = config.form == HlaForm::kPaper;
    (paper ? DeclarePaperThirdOrder : DeclareThirdOrder)(config, declaration);
  } else {
    const bool masked = config.form == HlaForm::kMasked;
    (masked ? DeclareMasked : DeclareProduct)(config, declaration);
  }
  return declaration;
}

}  // namespace rivulet
