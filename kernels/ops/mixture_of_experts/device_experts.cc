// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/mixture_of_experts/device_experts.h"

#include <cstdint>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/device/experts_operations.h"
#include "kernels/device/gated.h"

namespace rivulet {
namespace {

// The first of `experts` maps that are packed as one.
DeviceLinear FirstOf(const Linear& all, size_t experts) {
  DeviceLinear first = all.on_device();
  first.outputs = static_cast<uint32_t>(first.outputs / experts);
  return first;
}

template <typename T>
T* TakeArray(const DeviceStep& step, size_t count) {
  return static_cast<T*>(step.workspace->TakeBytes(count * sizeof(T)));
}

}  // namespace

DeviceExperts::DeviceExperts(const ExpertChoice& choice, Linear router, const Linear& gate_up,
                             const Linear& down, std::optional<GatedMlp> shared)
    : choice_(choice),
      router_(std::move(router)),
      gate_up_(FirstOf(gate_up, choice.experts)),
      down_(FirstOf(down, choice.experts)),
      shared_(std::move(shared)) {
  RIVULET_CHECK(choice_.experts_per_token >= 1 && choice_.experts_per_token <= choice_.experts,
                "more experts for a token than there are");
}

void DeviceExperts::Apply(ConstFloatMatrix /*x*/, FloatMatrix /*y*/, Workspace& /*workspace*/,
                          ThreadPool& /*pool*/) const {
  RIVULET_CHECK(false, "the weights of this mixture of experts are on a device");
}

bool DeviceExperts::runs_on_device() const {
  // The grouped product takes bf16 weights.
  if (gate_up_.scale != nullptr || down_.scale != nullptr) return false;
  return choice_.experts <= kMostDeviceExperts &&
         choice_.experts_per_token <= kMostDeviceExpertsPerToken;
}

ExpertRouting DeviceExperts::NewRouting(const DeviceStep& step) const {
  ExpertRouting routing;
  routing.experts = static_cast<uint32_t>(choice_.experts);
  routing.per_token = static_cast<uint32_t>(choice_.experts_per_token);
  const uint32_t pairs = step.rows.tokens * routing.per_token;
  routing.tile_rows = kExpertTileRows;
  routing.most_tiles = MostExpertTiles(pairs, routing.experts, routing.tile_rows);
  routing.expert = TakeArray<uint32_t>(step, pairs);
  routing.weight = TakeArray<float>(step, pairs);
  routing.row = TakeArray<uint32_t>(step, pairs);
  routing.token_of_row = TakeArray<uint32_t>(step, pairs);
  routing.members =
      TakeArray<uint32_t>(step, size_t{(step.rows.tokens + 31) / 32} * routing.experts);
  routing.tiles = TakeArray<ExpertTile>(step, routing.most_tiles);
  return routing;
}

void DeviceExperts::Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const {
  const FloatMatrix logits = step.workspace->Take(x.rows, router_.outputs());
  router_.Enqueue(*step.device, x, logits);
  const ExpertRouting routing = NewRouting(step);
  step.device->Route({.rows = step.rows,
                      .logits = logits,
                      .weights_sum_to_one = choice_.weights_sum_to_one,
                      .routing = routing});
  if (shared_.has_value()) shared_->Enqueue(step, x, y);

  const size_t pairs = size_t{x.rows} * routing.per_token, width = down_.inputs;
  const FloatMatrix both = step.workspace->Take(pairs, 2 * width);
  step.device->ExpertProduct(
      {.routing = routing, .map = gate_up_, .x = x, .by_token = true, .y = both});
  const Operand middle = Gated(step, both.Columns(width, width), both.Columns(0, width));
  const FloatMatrix outputs = step.workspace->Take(pairs, down_.outputs);
  step.device->ExpertProduct({.routing = routing, .map = down_, .x = middle, .y = outputs});

  CombineExpertsCall sum{.routing = routing, .outputs = outputs, .y = y};
  sum.adds = shared_.has_value();
  if (router_.outputs() > choice_.experts) sum.gate = logits.Columns(choice_.experts, 1);
  step.device->CombineExperts(sum);
}

}  // namespace rivulet
