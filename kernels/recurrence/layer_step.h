// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_KERNELS_RECURRENCE_LAYER_STEP_H_
#define RIVULET_KERNELS_RECURRENCE_LAYER_STEP_H_

#include <span>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/stage_times.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// What a step lends to one layer.
struct LayerStep {
  std::span<const Segment> segments;  // disjoint token ranges; each session at most once
  LayerState state;                   // this layer's part of the slots
  Workspace* workspace;               // temporaries; the caller resets it after the layer
  ThreadPool* pool;
  StageTimes* times = nullptr;  // where a benchmark collects the time of each stage
  // [T, columns]: what a layer leaves for later layers of the same step (Mixer::handed_on_columns).
  // The first that uses it writes all of it. No state: the next step starts without it.
  FloatMatrix handed_on = {};
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_RECURRENCE_LAYER_STEP_H_
