// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <vector>

#include "kernels/device/device_step.h"
#include "kernels/mixers/anna/anna_config.h"
#include "kernels/mixers/anna/anna_hash.h"
#include "kernels/mixers/anna/anna_recurrence.h"
#include "kernels/mixers/layer_stages.h"

namespace rivulet {
namespace {

// Always fp32, even if weights are stored as bf16: another rounding would be another hash.
AnnaHash TakeHash(const AnnaHashShape& shape, ParameterSource& parameters) {
  std::vector<size_t> extents = {shape.heads, shape.tables, shape.hashes, shape.key_dim};
  if (shape.family == HashFamily::kCrossPolytope) extents.push_back(shape.key_dim);
  return AnnaHash(shape, parameters.TakeVector("hash_proj", extents).data());
}

// The columns of the one projection of x.
enum Part : size_t { kQuery, kKey, kValue };

class AnnaLayer : public Mixer {
 public:
  AnnaLayer(const AnnaConfig& config, const MixerSource& source)
      : layout_(source.options.NewLayout()),
        config_(config),
        projection_({{"q_proj", key_columns()},
                     {"k_proj", key_columns()},
                     {"v_proj", config.shape.heads * config.shape.head.value_dim}},
                    source.hidden, source.parameters),
        hash_(TakeHash(config.hash, source.parameters)),
        recurrence_(config.shape, layout_),
        output_({.heads = config.shape.heads,
                 .width = config.shape.head.value_dim,
                 .norm_eps = config.norm_eps},
                source) {
    if (config.unused_conv_size != 0) IgnoreConvolutions(source.parameters);
  }

  const StateLayout& state_layout() const override { return layout_; }

  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    const Projected projected = projection_.Apply(step, x);
    const FloatMatrix o =
        step.workspace->Take(x.rows, config_.shape.heads * config_.shape.head.padded_value());
    const AnnaInput input = Inputs(step, projected);
    {
      const StageTimer timer(step.times, Stage::kRecurrence);
      recurrence_.Run(step.segments, step.state, input, o, *step.pool);
    }
    output_.Apply(step, o, {}, y);
    return absl::OkStatus();
  }

  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override {
    const Projected projected = projection_.Enqueue(step, x);
    const size_t rows = x.rows, tables = config_.shape.heads * config_.hash.tables;
    const FloatMatrix q_buckets = step.workspace->Take(rows, tables);
    const FloatMatrix k_buckets = step.workspace->Take(rows, tables);
    const FloatMatrix o =
        step.workspace->Take(rows, config_.shape.heads * config_.shape.head.padded_value());
    hash_.Enqueue(*step.device, projected[kQuery], projected[kKey], q_buckets, k_buckets);
    recurrence_.Enqueue(step, {q_buckets, k_buckets, projected[kValue]}, o);
    output_.Enqueue(step, o, {}, y);
  }
  bool runs_on_device() const override { return recurrence_.RunsOnDevice(); }

 private:
  // The definition divides q and k by their lengths first. Signs of projections, and which of them
  // is the largest, do not depend on lengths, so that would not change a hash.
  AnnaInput Inputs(const LayerStep& step, const Projected& projected) const {
    const size_t rows = projected[kQuery].rows, tables = config_.shape.heads * config_.hash.tables;
    const FloatMatrix q_buckets = step.workspace->Take(rows, tables);
    const FloatMatrix k_buckets = step.workspace->Take(rows, tables);
    hash_.Apply(projected[kQuery], projected[kKey], q_buckets, k_buckets, *step.pool);
    return {q_buckets, k_buckets, projected[kValue]};
  }

  void IgnoreConvolutions(ParameterSource& parameters) const {
    constexpr const char* kNames[] = {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"};
    for (const Part part : {kQuery, kKey, kValue}) {
      parameters.Ignore(kNames[part], {projection_.columns(part), 1, config_.unused_conv_size});
    }
  }

  size_t key_columns() const { return config_.hash.heads * config_.hash.key_dim; }

  StateLayout layout_;
  AnnaConfig config_;
  Projection projection_;
  AnnaHash hash_;
  AnnaRecurrence recurrence_;
  HeadOutput output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const AnnaConfig& config,
                                                 const MixerSource& source) {
  return std::make_unique<AnnaLayer>(config, source);
}

}  // namespace rivulet
