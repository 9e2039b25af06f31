// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// For tests: engines of a checkpoint on a device and on the CPU, and how far apart their answers
// are. Not thread-safe.
#ifndef RIVULET_SERVER_ENGINE_DEVICE_ENGINE_FIXTURE_H_
#define RIVULET_SERVER_ENGINE_DEVICE_ENGINE_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/dtype.h"
#include "kernels/device/device.h"
#include "server/engine/engine.h"
#include "server/engine/fed_texts.h"

namespace rivulet {

// The CPU's engine with fp32 weights; null if there is none.
std::unique_ptr<Engine> CpuEngineFor(const std::string& model,
                                     std::optional<DType> kv = std::nullopt);

struct DeviceAndEngine {
  std::unique_ptr<Device> device;
  std::unique_ptr<Engine> engine;
};

struct DeviceEngineChoices {
  DType state = DType::kFloat32;
  size_t depth = 1;
  std::optional<DType> kv = std::nullopt;
  std::optional<DType> weights = std::nullopt;
  bool with_head = true;  // for further tokens, where the model has one
  uint64_t state_memory = uint64_t{256} << 20;
};

// The status says why there is none.
absl::StatusOr<DeviceAndEngine> EngineOn(std::unique_ptr<Device> device, const std::string& model,
                                         const DeviceEngineChoices& choices = {});

// On a fake device that rounds the operands of products.
DeviceAndEngine RoundingFake(const std::string& model, ProductPrecision rounding,
                             std::optional<DType> weights = std::nullopt);

// Whether a fixture's model has a head for further tokens.
bool HasHead(const std::string& model);

// For each token, the largest difference of the log-probabilities that both list, in order of size.
std::vector<double> Distances(const Answers& a, const Answers& b);

// The largest of them.
double Distance(const Answers& a, const Answers& b);

// As Distance, but the median for models whose choice of a bucket or an expert may differ where a
// number is rounded differently: what follows such a choice differs as much as after another text.
double RoundedDistance(const std::string& model, const Answers& a, const Answers& b);

// The same in fp8, where a number changes more, so that more models choose otherwise.
double Float8Distance(const std::string& model, const Answers& a, const Answers& b);

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_DEVICE_ENGINE_FIXTURE_H_
