// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model_loader/loaded_model.h"

namespace rivulet {
namespace {

constexpr const char* kTable = "ple_embedding.ngram_embedding.";

// The table, whole or in shards of rows. Hashes are computed, not read.
Linear TakeTable(const NgramForm& form, ParameterSource& parameters) {
  const size_t rows = NgramHash(form.hash).rows();
  std::vector<LinearPart> shards;
  size_t taken = 0;
  for (size_t i = 0;; ++i) {
    const std::string name = absl::StrCat(kTable, "shard_", i, ".weight");
    const std::vector<size_t> shape = parameters.Shape(name);
    if (shape.size() != 2) break;
    shards.push_back({name, shape[0], ""});
    taken += shape[0];
  }
  // What the others leave is in the last one; its shape is refused where it does not fit.
  if (!shards.empty()) {
    const size_t others = taken - shards.back().outputs;
    shards.back().outputs = others < rows ? rows - others : rows;
  }
  if (shards.empty()) shards.push_back({absl::StrCat(kTable, "weight"), rows, ""});
  return parameters.TakeRouter(shards, form.row);  // rows of bf16 on a device: they are looked up
}

AlignedBuffer<float> TakeOnePlus(const char* name, size_t count, ParameterSource& parameters) {
  AlignedBuffer<float> weight = parameters.TakeVector(name, {count});
  for (size_t i = 0; i < count; ++i) weight[i] += 1.0f;
  return weight;
}

}  // namespace

std::unique_ptr<NgramEmbedding> TakeNgrams(const NgramSpec& spec, size_t hidden,
                                           const StateLayout& empty, ParameterSource& parameters) {
  const NgramForm& form = spec.form;
  ParameterSource own = parameters.At(spec.prefix);
  const size_t all = form.streams * hidden, heads = (form.hash.ngram - 1) * form.hash.heads;
  NgramParts parts{
      .table = TakeTable(form, own),
      .keys = own.TakeLinear({{"key_proj.weight", all, ""}, {"value_proj.weight", hidden, ""}},
                             form.inputs()),
      .key_norm = TakeOnePlus("norm_key.weight", all, own),
      .query_norm = TakeOnePlus("norm_query.weight", all, own),
      .convolution_norm = TakeOnePlus("norm_conv.weight", all, own),
      .taps = own.TakeVector("conv1d.weight", {all, 1, form.taps})};
  own.Ignore("ple_embedding.layer_multipliers", {form.hash.ngram});
  own.Ignore("ple_embedding.ngram_heads_vocab_sizes", {heads});
  own.Ignore("ple_embedding.ngram_heads_offsets", {heads});
  return std::make_unique<NgramEmbedding>(form, std::move(parts), empty);
}

}  // namespace rivulet
