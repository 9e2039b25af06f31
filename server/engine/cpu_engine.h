// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The Engine on this machine's cores.
#ifndef RIVULET_SERVER_ENGINE_CPU_ENGINE_H_
#define RIVULET_SERVER_ENGINE_CPU_ENGINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "model_loader/loaded_model.h"
#include "server/engine/engine.h"
#include "server/engine/language_model.h"

namespace rivulet {

// Reserves the state slots, starts the threads, and runs one small step, so that the weights are in
// memory and the workspaces exist when the first request comes. RESOURCE_EXHAUSTED naming
// --state-memory if not one session fits.
// `profile`, if given, counts where every step's time goes; it must outlive the engine.
absl::StatusOr<std::unique_ptr<Engine>> MakeCpuEngine(std::shared_ptr<const LoadedModel> model,
                                                      const EngineOptions& options,
                                                      StepProfile* profile = nullptr);

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_CPU_ENGINE_H_
