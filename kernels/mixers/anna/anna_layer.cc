// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/status.h"
#include "kernels/mixers/anna/anna.h"
#include "kernels/mixers/anna/anna_config.h"
#include "kernels/mixers/anna/anna_hash.h"
#include "kernels/mixers/anna/anna_recurrence.h"
#include "kernels/ops/norm/norm.h"

namespace rivulet {
namespace {

// Always fp32, whatever the weights rest as: another rounding would be another hash.
AnnaHash TakeHash(const AnnaHashShape& shape, ParameterSource& parameters) {
  std::vector<size_t> extents = {shape.heads, shape.tables, shape.hashes, shape.key_dim};
  if (shape.family == HashFamily::kCrossPolytope) extents.push_back(shape.key_dim);
  return AnnaHash(shape, parameters.TakeVector("hash_proj", extents).data());
}

class AnnaLayer : public Mixer {
 public:
  AnnaLayer(const AnnaConfig& config, const MixerSource& source)
      : config_(config),
        qkv_(source.parameters.TakeLinear({{"q_proj.weight", key_columns(), ""},
                                           {"k_proj.weight", key_columns(), ""},
                                           {"v_proj.weight", value_columns(), ""}},
                                          source.hidden)),
        hash_(TakeHash(config.hash, source.parameters)),
        recurrence_(config.shape, layout_),
        norm_(source.parameters.TakeVector("o_norm.weight", {config.shape.head.value_dim})),
        output_(
            source.parameters.TakeLinear({{"o_proj.weight", source.hidden, ""}}, value_columns())) {
    if (config.unused_conv_size == 0) return;
    for (const auto& [name, channels] :
         {std::pair("q", key_columns()), std::pair("k", key_columns()),
          std::pair("v", value_columns())}) {
      source.parameters.Ignore(std::string(name) + "_conv1d.weight",
                               {channels, 1, config.unused_conv_size});
    }
  }

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const MixerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const BucketShape& head = config_.shape.head;
    Workspace& workspace = *step.workspace;
    const FloatMatrix projected = workspace.Take(x.rows, qkv_.outputs());
    qkv_.Apply(x, projected, *step.pool);

    const FloatMatrix o = workspace.Take(x.rows, config_.shape.heads * head.padded_value());
    recurrence_.Run(step.segments, step.state, Inputs(step, projected), o, *step.pool);

    const FloatMatrix normed = workspace.Take(x.rows, value_columns());
    HeadNormGate(o, config_.shape.heads, head.value_dim, head.padded_value(), norm_.data(),
                 config_.norm_eps, {}, normed, *step.pool);
    output_.Apply(normed, y, *step.pool);
    return absl::OkStatus();
  }

 private:
  // The definition divides q and k by their lengths first. Signs of projections, and which of them
  // is the largest, do not depend on lengths, so that would change no hash.
  AnnaInput Inputs(const MixerStep& step, FloatMatrix projected) const {
    const size_t keys = key_columns(), tables = config_.shape.heads * config_.hash.tables;
    const FloatMatrix q_buckets = step.workspace->Take(projected.rows, tables);
    const FloatMatrix k_buckets = step.workspace->Take(projected.rows, tables);
    hash_.Apply(projected.Columns(0, keys), projected.Columns(keys, keys), q_buckets, k_buckets,
                *step.pool);
    return {q_buckets, k_buckets, projected.Columns(2 * keys, value_columns())};
  }

  size_t key_columns() const { return config_.hash.heads * config_.hash.key_dim; }
  size_t value_columns() const { return config_.shape.heads * config_.shape.head.value_dim; }

  AnnaConfig config_;
  Linear qkv_;
  AnnaHash hash_;
  StateLayout layout_;
  AnnaRecurrence recurrence_;
  AlignedBuffer<float> norm_;  // [e]
  Linear output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeAnna(const MixerSource& source) {
  RIVULET_ASSIGN_OR_RETURN(const AnnaConfig config,
                           ParseAnnaConfig(source.config, source.hidden, source.options));
  return std::make_unique<AnnaLayer>(config, source);
}

}  // namespace rivulet
