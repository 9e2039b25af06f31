// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The Engine on a device (kernels/device).
#ifndef RIVULET_SERVER_ENGINE_DEVICE_ENGINE_H_
#define RIVULET_SERVER_ENGINE_DEVICE_ENGINE_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device/device.h"
#include "model_loader/loaded_model.h"
#include "server/engine/engine.h"

namespace rivulet {

// A device, and a model that was loaded for it (MixerOptions::device).
struct DeviceAndModel {
  std::unique_ptr<Device> device;
  std::shared_ptr<const LoadedModel> model;
};
// Opens the device and loads the model. The engine thread calls it again after a failure.
using DeviceOpener = std::function<absl::StatusOr<DeviceAndModel>()>;

// Runs a step of the largest size, so that later ones allocate nothing, reserves the state slots in
// what the device has left, and records the steps of decode rows and those of few tokens.
// RESOURCE_EXHAUSTED, saying what is missing, if not one session fits. `depth`: 1; or 2, with which
// steps run ahead.
absl::StatusOr<std::unique_ptr<Engine>> MakeDeviceEngine(const DeviceOpener& open,
                                                         const EngineOptions& options,
                                                         size_t depth = 1);

// The same with a device that outlives the engine, which cannot restart then.
absl::StatusOr<std::unique_ptr<Engine>> MakeDeviceEngine(std::shared_ptr<const LoadedModel> model,
                                                         Device* device,
                                                         const EngineOptions& options,
                                                         size_t depth = 1);

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_DEVICE_ENGINE_H_
