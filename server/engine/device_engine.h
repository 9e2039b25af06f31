// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The Engine on a device (kernels/device).
#ifndef RIVULET_SERVER_ENGINE_DEVICE_ENGINE_H_
#define RIVULET_SERVER_ENGINE_DEVICE_ENGINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device/device.h"
#include "model_loader/loaded_model.h"
#include "server/engine/engine.h"

namespace rivulet {

// Reserves the state slots in the device's memory, runs a step of the largest size, so that later
// ones allocate nothing, and records the steps of decode rows. `model` was loaded for `device`
// (MixerOptions::device), which outlives the engine. RESOURCE_EXHAUSTED naming --state-memory if
// not one session fits. `depth`: 1; or 2, with which steps run ahead: tested on a fake device, not
// run on a GPU yet.
absl::StatusOr<std::unique_ptr<Engine>> MakeDeviceEngine(std::shared_ptr<const LoadedModel> model,
                                                         Device* device,
                                                         const EngineOptions& options,
                                                         size_t depth = 1);

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_DEVICE_ENGINE_H_
