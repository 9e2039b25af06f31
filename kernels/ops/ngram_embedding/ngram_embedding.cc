// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/ngram_embedding/ngram_embedding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/base/row_arithmetic.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/embedding/embedding.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

// Channel i is the input of i + 1 tokens ago.
AlignedBuffer<float> TapsBefore(size_t ngram) {
  AlignedBuffer<float> taps((ngram - 1) * ngram);
  for (size_t i = 0; i + 1 < ngram; ++i) taps[i * ngram + ngram - 2 - i] = 1.0f;
  return taps;
}

// Taps `dilation` apart are those of a window with zeros between them.
AlignedBuffer<float> Dilated(const NgramForm& form, const AlignedBuffer<float>& taps) {
  const size_t channels = taps.size() / form.taps, window = form.window();
  AlignedBuffer<float> wide(channels * window);
  for (size_t c = 0; c < channels; ++c) {
    for (size_t j = 0; j < form.taps; ++j) {
      wide[c * window + j * form.dilation] = taps[c * form.taps + j];
    }
  }
  return wide;
}

float SignedRoot(float x) {
  const float root = std::sqrt(std::max(std::abs(x), 1e-6f));
  return x > 0 ? root : x < 0 ? -root : x;  // NaN stays
}

}  // namespace

NgramEmbedding::NgramEmbedding(const NgramForm& form, NgramParts parts, const StateLayout& empty)
    : layout_(empty.Empty()),
      form_(form),
      hash_(form.hash),
      parts_(std::move(parts)),
      hidden_(parts_.key_norm.size() / form.streams),
      before_(IdsOnCpu(form, layout_)),
      convolution_(Dilated(form, parts_.taps), {}, form.streams * hidden_, form.window(), true,
                   "conv", layout_) {
  if (layout_.device()) AddDevicePlanes();
}

ShortConvolution NgramEmbedding::IdsOnCpu(const NgramForm& form, StateLayout& layout) {
  if (layout.device()) return {};
  const size_t ngram = form.hash.ngram;
  return {TapsBefore(ngram), {}, ngram - 1, ngram, false, "ids", layout};
}

// The hashed rows of each token side by side, [T, inputs].
FloatMatrix NgramEmbedding::Rows(const LayerStep& step, std::span<const uint32_t> ids) const {
  const size_t ngram = hash_.ngram(), heads = hash_.heads();
  const FloatMatrix own = step.workspace->Take(ids.size(), ngram - 1);
  const FloatMatrix before = step.workspace->Take(ids.size(), ngram - 1);
  for (size_t t = 0; t < ids.size(); ++t) {
    std::fill_n(own.row(t), ngram - 1, static_cast<float>(ids[t]) + 1);
    std::fill_n(before.row(t), ngram - 1, 0.0f);
  }
  before_.Apply(step.segments, step.state, own, before, *step.pool);
  uint32_t* const rows = step.workspace->TakeIndices(heads * ids.size());  // [heads, T]
  for (size_t t = 0; t < ids.size(); ++t) {
    std::array<uint32_t, kMostNgram> tokens = {ids[t]};
    for (size_t i = 1; i < ngram; ++i) {
      const float id = before.row(t)[i - 1];
      const bool ended = i > 1 && tokens[i - 1] == form_.end_of_text;
      tokens[i] = ended || id == 0 ? form_.end_of_text : static_cast<uint32_t>(id) - 1;
    }
    std::array<uint32_t, kMostNgram * kMostNgramHeads> found;
    hash_.RowsOf({tokens.data(), ngram}, found.data());
    for (size_t h = 0; h < heads; ++h) rows[h * ids.size() + t] = found[h];
  }
  const PackedLinear packed = parts_.table.packed();
  const EmbeddingTable table{.data = packed.panels.data(),
                             .dtype = packed.dtype,
                             .vocab = packed.outputs,
                             .width = packed.inputs,
                             .in_panels = true};
  const FloatMatrix e = step.workspace->Take(ids.size(), form_.inputs());
  for (size_t h = 0; h < heads; ++h) {
    Embed(table, {rows + h * ids.size(), ids.size()}, e.Columns(h * form_.row, form_.row));
  }
  return e;
}

void NgramEmbedding::Norm(ConstFloatMatrix x, const AlignedBuffer<float>& weight, FloatMatrix y,
                          ThreadPool& pool) const {
  for (size_t first = 0; first < x.columns; first += hidden_) {
    RmsNorm(x.Columns(first, hidden_), weight.data() + first, form_.norm_eps,
            y.Columns(first, hidden_), pool);
  }
}

void NgramEmbedding::Gate(ConstFloatMatrix query, ConstFloatMatrix key, ConstFloatMatrix value,
                          FloatMatrix y, ThreadPool& pool) const {
  const float root = std::sqrt(static_cast<float>(hidden_));
  ParallelRows(pool, y.rows, 4 * y.columns, [&](size_t t) {
    for (size_t first = 0; first < y.columns; first += hidden_) {
      float gate = SignedRoot(OrderedDot(key.row(t) + first, query.row(t) + first, hidden_) / root);
      Activate(Activation::kSigmoid, &gate, &gate, 1);
      for (size_t i = 0; i < hidden_; ++i) y.row(t)[first + i] = gate * value.row(t)[i];
    }
  });
}

void NgramEmbedding::Apply(const LayerStep& step, std::span<const uint32_t> ids,
                           FloatMatrix streams) const {
  ThreadPool& pool = *step.pool;
  const size_t all = streams.columns;
  const auto take = [&](size_t columns) { return step.workspace->Take(ids.size(), columns); };
  const FloatMatrix both = take(all + hidden_), query = take(all), gated = take(all);
  parts_.keys.Apply(Rows(step, ids), both, pool);
  const FloatMatrix key = both.Columns(0, all);
  Norm(key, parts_.key_norm, key, pool);
  Norm(streams, parts_.query_norm, query, pool);
  Gate(query, key, both.Columns(all, hidden_), gated, pool);
  Norm(gated, parts_.convolution_norm, query, pool);
  convolution_.Apply(step.segments, step.state, query, key, pool);
  for (const Segment& segment : step.segments) {
    AddRows(gated.Rows(segment.first_token, segment.tokens),
            streams.Rows(segment.first_token, segment.tokens), pool);
    AddRows(key.Rows(segment.first_token, segment.tokens),
            streams.Rows(segment.first_token, segment.tokens), pool);
  }
}

}  // namespace rivulet
