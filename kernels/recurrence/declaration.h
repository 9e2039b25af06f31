// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A recurrence of decayed sums, described as data: what a token appends, which sums are kept over
// the appended rows, and how they are read. docs/recurrences.md shows the declaration of every
// mixer beside its formula. An engine executes declarations (sum_recurrence.h on the CPU); a mixer
// writes one, and nothing of it depends on the device.
//
//     rows    what one token leaves in the tail: copies of its inputs, and results of its reads
//     sums    M_t = e^{power g_t} M_{t-1} + key_tᵀ value_t over two of the rows
//     reads   to_t = query_t M_t, in order; a later read may use what an earlier one produced
//
// Three variations. With `delta`, the sum is corrected by what it already holds for a key (the
// delta rule, delta.h); with `low_rank`, what is read, corrected and added are keys of their own.
// With `levels`, the sum is not added up in one base but stored in the pages of a binary counter,
// and every term of a read is weighted by its distance (fenwick.h).
//
// Names refer to each other inside one declaration. "q", "k", "v" and "b" are the token's inputs,
// "o" is the output, and a name that a read writes and no row has is a temporary of the step.
//
// Letters: T tokens, H heads, G groups, D key width, E value width; Dp and Ep are the padded widths
// (PaddedColumns).
#ifndef RIVULET_KERNELS_RECURRENCE_DECLARATION_H_
#define RIVULET_KERNELS_RECURRENCE_DECLARATION_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/recurrence/recurrence.h"

namespace rivulet {

// The heads of one layer. The H/G heads of a group are neighbours: group j has heads j·H/G on.
struct HeadShape {
  size_t heads = 0;                     // H: one output each
  size_t groups = 0;                    // G, divides H
  size_t key_dim = 0;                   // D <= kMaxKeyDim
  size_t value_dim = 0;                 // E
  DType state_dtype = DType::kFloat32;  // of bases and pages; normalisers are always fp32

  size_t group() const { return heads / groups; }  // heads of one group
  size_t padded_key() const { return PaddedColumns(key_dim); }
  size_t padded_value() const { return PaddedColumns(value_dim); }
};

// What the heads of a group have in common.
enum class Sharing : uint8_t {
  kKeysAndValues,   // grouped queries: q for each head; k, v (and decays by channel) for each group
  kQueriesAndKeys,  // grouped values: q, k for each group; v, all decays and β for each head
};

// The inputs of a step, fp32. Heads are padded: q has Dp columns for each of its heads or groups, k
// Dp, v Ep, with zeros in the padding.
struct TokenInputs {
  ConstFloatMatrix q = {}, k = {}, v = {};
  // Log decays g <= 0: [T, H], or by channel [T, G·Dp] with kKeysAndValues and [T, H·Dp] with
  // kQueriesAndKeys; the steps Δ [T, H] where the declaration
  // has rates. Not read without a decay, or with a constant one.
  ConstFloatMatrix decay = {};
  ConstFloatMatrix beta = {};    // [T, H]; with `delta` only
  ConstFloatMatrix levels = {};  // [T, H·Lv]: level weights λ, (head, level); with `levels` only
  ConstFloatMatrix a = {}, b = {};  // [T, G·Dp]; with `low_rank` only
};

// One row of a token: kept for each group if it copies inputs that a group shares, else for each
// head.
struct DeclaredRow {
  std::string_view name;
  size_t width = 0;
  // The inputs it copies, side by side, each from a multiple of kBlock. Empty: a read writes the
  // row, or the solve of the delta rule does.
  std::vector<std::string_view> copies = {};
  // Row = Δ · input, for an input of heads without padding between them.
  bool times_step = false;
};

// One sum. Keys are the first D columns of the key row. It is kept for each group if its rows and
// its decay are, else for each head.
struct DeclaredSum {
  std::string_view name;
  std::string_view key;
  std::string_view value;
  // One more value column, 1 for each token, or the normaliser's read if a read writes the value
  // row (SumTail::extra).
  bool normaliser = false;
  float decay_power = 1.0f;
  size_t value_column = 0;  // the values are the value row's columns from here on
};

// to = query · sum. The reads of a token see its own row, strict ones only the rows before it.
struct DeclaredRead {
  std::string_view to;
  std::string_view sum;
  std::string_view query;  // "q", "k" or a temporary
  bool strict = false;
  float ridge = 0.0f;  // reads sum + ridge · I
  float add = 0.0f;    // not 0: to += add · read, for to = "o"
};

struct DeclaredDecay {
  Decay kind = Decay::kNone;
  // kScalar, a constant for each head: log γ [H], in double because it is multiplied by up to C
  // before it is rounded. Empty: the decay is an input.
  std::vector<double> constant = {};
  // kScalar: g = rate_h · Δ [H]. Empty: the input is g itself.
  std::vector<float> rate = {};
};

// What happens to the outputs of normalised sums, with n the normaliser's read.
enum class Division : uint8_t {
  kNone,
  kQuotient,    // o / (n + eps): HLA, AHLA, third order
  kReciprocal,  // o · (1 / (n + eps)), rounded twice: linear attention
};

struct RecurrenceDeclaration {
  HeadShape shape;
  Sharing sharing = Sharing::kKeysAndValues;
  DeclaredDecay decay = {};
  std::vector<DeclaredRow> rows = {};
  std::vector<DeclaredSum> sums = {};
  std::vector<DeclaredRead> reads = {};
  // The delta rule: the one sum's writes are u_t = β_t (v_t - k_t S̄). Kept in a base, the sum's
  // value row holds u; kept in pages, v.
  bool delta = false;
  // The low-rank form of it (delta.h): the one sum adds k_tᵀ v_t + b_tᵀ u_t with u_t = a_t S_{t-1}.
  // Its key row is k | b, of padded width each, its value row v | u, its decay by channel.
  bool low_rank = false;
  // Lv > 0: the one sum is in pages, and its read is weighted by level.
  uint32_t levels = 0;
  Division division = Division::kNone;
  float denominator_eps = 0.0f;
  // [H·E]: o += skip ∘ v, for v without padding between heads. Empty: no skip.
  std::vector<float> skip = {};
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_RECURRENCE_DECLARATION_H_
