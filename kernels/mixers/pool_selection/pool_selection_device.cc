// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/device/pool_operations.h"
#include "kernels/mixers/pool_selection/pool_selection_recurrence.h"

namespace rivulet {

bool PoolSelectionRecurrence::RunsOnDevice(const PoolSelectionConfig& config) {
  return config.pool == 0 ||
         (config.padded() <= kMostDeviceIndexDim && config.heads <= kMostDeviceIndexHeads &&
          config.most <= kMostChosenPools);
}

void PoolSelectionRecurrence::Enqueue(const DeviceStep& step, const DevicePoolInput& input,
                                      FloatMatrix chosen) const {
  const PoolPlanes planes{.rows = step.rows,
                          .slots = step.slots,
                          .pages = step.pages,
                          .pool = static_cast<uint32_t>(config_.pool),
                          .key_dim = static_cast<uint32_t>(config_.key_dim),
                          .padded = static_cast<uint32_t>(row()),
                          .tail_pools = tail_pools_,
                          .page_pools = page_pools_};
  PoolKeysCall keys{.planes = planes,
                    .k = input.k,
                    .gates = input.gates,
                    .biases = step.device->Constant({ape_.data(), ape_.size()}),
                    .norm_weight = step.device->Constant(input.norm),
                    .norm_eps = config_.norm_eps,
                    .tail_keys = tail_keys_,
                    .tail_gates = tail_gates_};
  if (input.rope != nullptr) input.rope->SetRotation(*step.device, keys);
  step.device->PoolKeys(keys);
  step.device->ChoosePools({.planes = planes,
                            .most = static_cast<uint32_t>(config_.most),
                            .heads = static_cast<uint32_t>(config_.heads),
                            .q = input.q,
                            .head_stride = static_cast<uint32_t>(input.head_stride),
                            .weights = input.weights,
                            .chosen = chosen});
}

}  // namespace rivulet
