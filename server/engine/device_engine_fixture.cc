// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/device_engine_fixture.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <string_view>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/base/worst_difference.h"
#include "kernels/device/fake_device.h"
#include "server/engine/cpu_engine.h"
#include "server/engine/device_engine.h"

namespace rivulet {
namespace {

bool IsOneOf(std::string_view name, std::initializer_list<std::string_view> families) {
  return std::any_of(families.begin(), families.end(), [&](std::string_view family) {
    return name.find(family) != std::string_view::npos;
  });
}

// Whether a number that is rounded differently can make a model choose another bucket or expert.
bool Chooses(const std::string& model) {
  const std::string name = std::filesystem::path(model).filename();
  return name.starts_with("anna") || name.starts_with("mixture") ||
         IsOneOf(name, {"nemotron", "kimi", "lfm2_moe", "jamba", "minimax", "glm5", "qwen4"}) ||
         name == "upstream_hf_qwen3_next" || name == "upstream_hf_qwen3_next_all_weights";
}

}  // namespace

std::unique_ptr<Engine> CpuEngineFor(const std::string& model, std::optional<DType> kv) {
  LoadOptions options;
  options.mixer.kv_dtype = kv;
  options.weight_dtype = DType::kFloat32;
  auto loaded = LoadModel(model, options);
  if (!loaded.ok()) return nullptr;
  auto engine = MakeCpuEngine(*std::move(loaded), {.threads = 4});
  return engine.ok() ? *std::move(engine) : nullptr;
}

bool HasHead(const std::string& model) { return model.ends_with("_predictor"); }

absl::StatusOr<DeviceAndEngine> EngineOn(std::unique_ptr<Device> device, const std::string& model,
                                         const DeviceEngineChoices& choices) {
  LoadOptions options;
  options.predictor = choices.with_head && HasHead(model);
  options.weight_dtype = choices.weights;
  options.mixer.kv_dtype = choices.kv;
  options.mixer.device = device.get();
  options.mixer.state_dtype = choices.state;
  auto loaded = LoadModel(model, options);
  if (!loaded.ok()) return loaded.status();
  auto engine =
      MakeDeviceEngine(*std::move(loaded), device.get(),
                       {.threads = 4, .state_memory = choices.state_memory}, choices.depth);
  if (!engine.ok()) return engine.status();
  return DeviceAndEngine{std::move(device), *std::move(engine)};
}

DeviceAndEngine RoundingFake(const std::string& model, ProductPrecision rounding,
                             std::optional<DType> weights) {
  auto fake = std::make_unique<FakeDevice>();
  fake->rounding = rounding;
  auto made = EngineOn(std::move(fake), model, {.weights = weights});
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

std::vector<double> Distances(const Answers& a, const Answers& b) {
  if (a.size() != b.size()) return {INFINITY};
  std::vector<double> distances;
  for (size_t i = 0; i < a.size(); ++i) {
    std::map<uint32_t, float> known;
    for (const TokenLogprob& x : a[i].top) known[x.token] = x.logprob;
    double& worst = distances.emplace_back(0);
    for (const TokenLogprob& x : b[i].top) {
      const auto found = known.find(x.token);
      if (found != known.end()) worst = WorstDifference(worst, found->second, x.logprob);
    }
  }
  std::sort(distances.begin(), distances.end());
  return distances;
}

double Distance(const Answers& a, const Answers& b) { return Distances(a, b).back(); }

double RoundedDistance(const std::string& model, const Answers& a, const Answers& b) {
  const std::vector<double> distances = Distances(a, b);
  return Chooses(model) ? distances[distances.size() / 2] : distances.back();
}

double Float8Distance(const std::string& model, const Answers& a, const Answers& b) {
  if (!IsOneOf(model, {"moe"})) return RoundedDistance(model, a, b);
  const std::vector<double> distances = Distances(a, b);
  return distances[distances.size() / 2];
}

}  // namespace rivulet
