// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/mixture_of_experts/device_experts.h"

#include <cstdint>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/experts_operations.h"
#include "kernels/device/gate_operations.h"
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

DeviceExperts::DeviceExperts(DeviceMixtureParts parts)
    : parts_(std::move(parts)),
      in_(FirstOf(parts_.in, parts_.choice.experts)),
      out_(FirstOf(parts_.out, parts_.choice.experts)) {
  const ExpertChoice& choice = parts_.choice;
  RIVULET_CHECK(choice.experts_per_token >= 1 && choice.experts_per_token <= choice.experts,
                "more experts for a token than there are");
  RIVULET_CHECK(in_.outputs == out_.inputs * (parts_.gated ? 2 : 1),
                "the experts' maps disagree on their width");
}

void DeviceExperts::Apply(const LayerStep& /*step*/, ConstFloatMatrix /*x*/,
                          FloatMatrix /*y*/) const {
  RIVULET_CHECK(false, "the weights of this mixture of experts are on a device");
}

bool DeviceExperts::runs_on_device() const {
  if (parts_.shared != nullptr && !parts_.shared->runs_on_device()) return false;
  return parts_.choice.experts <= kMostDeviceExperts &&
         parts_.choice.experts_per_token <= kMostDeviceExpertsPerToken;
}

ExpertRouting DeviceExperts::NewRouting(const DeviceStep& step) const {
  ExpertRouting routing;
  routing.experts = static_cast<uint32_t>(parts_.choice.experts);
  routing.per_token = static_cast<uint32_t>(parts_.choice.experts_per_token);
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

ExpertRouting DeviceExperts::EnqueueRoute(const DeviceStep& step, ConstFloatMatrix logits) const {
  const ExpertChoice& choice = parts_.choice;
  RouteCall call{.rows = step.rows,
                 .logits = logits,
                 .weights_sum_to_one = choice.weights_sum_to_one,
                 .scaling = choice.scaling,
                 .sigmoid = choice.scores == ExpertScores::kSigmoid,
                 .routing = NewRouting(step)};
  if (call.sigmoid) {
    call.correction = step.device->Constant({parts_.correction.data(), parts_.correction.size()});
    call.groups = static_cast<uint32_t>(choice.groups);
    call.groups_per_token = static_cast<uint32_t>(choice.groups_per_token);
    call.scores = step.workspace->Take(logits.rows, choice.experts + choice.groups);
  }
  step.device->Route(call);
  return call.routing;
}

Operand DeviceExperts::GatedUp(const DeviceStep& step, ConstFloatMatrix gate,
                               ConstFloatMatrix up) const {
  if (parts_.limit == 0) return Gated(step, up, gate, Activation::kIdentity, parts_.f);
  const Operand y = step.workspace->TakeOperand(up.rows, up.columns);
  step.device->Gate({.gate = gate, .x = up, .f = parts_.f, .limit = parts_.limit, .y = y});
  return y;
}

// [P, inputs]: what each pair's expert makes of its token's row of x.
FloatMatrix DeviceExperts::EnqueueExperts(const DeviceStep& step, const ExpertRouting& routing,
                                          const Operand& x) const {
  const size_t pairs = size_t{x.rows} * routing.per_token, width = out_.inputs;
  const FloatMatrix both = step.workspace->Take(pairs, in_.outputs);
  step.device->ExpertProduct({.routing = routing, .map = in_, .x = x, .by_token = true, .y = both});
  const Operand middle = parts_.gated
                             ? GatedUp(step, both.Columns(0, width), both.Columns(width, width))
                             : Gated(step, both, {}, parts_.f);
  const FloatMatrix outputs = step.workspace->Take(pairs, out_.outputs);
  step.device->ExpertProduct({.routing = routing, .map = out_, .x = middle, .y = outputs});
  return outputs;
}

// sum.y, which holds the shared expert's output if sum.adds, and the experts' behind up.
void DeviceExperts::AddLatentExperts(const DeviceStep& step, const Operand& x,
                                     const CombineExpertsCall& sum) const {
  const FloatMatrix y = sum.y, narrow = step.workspace->Take(x.rows, parts_.latent_down.outputs());
  parts_.latent_down.Enqueue(*step.device, x, narrow);
  const FloatMatrix outputs = EnqueueExperts(step, sum.routing, Gated(step, narrow, {}));
  step.device->CombineExperts({.routing = sum.routing, .outputs = outputs, .y = narrow});
  const Operand sums = Gated(step, narrow, {});
  if (!sum.adds) return parts_.latent_up.Enqueue(*step.device, sums, y);
  if (sum.gate.data != nullptr) {
    CombineExpertsCall gate = sum;
    gate.routing.per_token = 0;
    gate.outputs = y;
    step.device->CombineExperts(gate);
  }
  const FloatMatrix wide = step.workspace->Take(x.rows, y.columns);
  parts_.latent_up.Enqueue(*step.device, sums, wide);
  step.device->AddNorm({.x = y, .update = wide});
}

void DeviceExperts::Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const {
  const FloatMatrix logits = step.workspace->Take(x.rows, parts_.router.outputs());
  parts_.router.Enqueue(*step.device, x, logits);
  const size_t experts = parts_.choice.experts;
  CombineExpertsCall sum{.routing = EnqueueRoute(step, logits), .outputs = {}, .y = y};
  sum.adds = parts_.shared != nullptr;
  if (sum.adds) parts_.shared->Enqueue(step, x, y);
  if (logits.columns > experts) sum.gate = logits.Columns(experts, 1);
  if (latent()) return AddLatentExperts(step, x, sum);
  sum.outputs = EnqueueExperts(step, sum.routing, x);
  step.device->CombineExperts(sum);
}

}  // namespace rivulet
