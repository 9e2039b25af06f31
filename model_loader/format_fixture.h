// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the tests of formats have in common. For tests only.
#ifndef RIVULET_MODEL_LOADER_FORMAT_FIXTURE_H_
#define RIVULET_MODEL_LOADER_FORMAT_FIXTURE_H_

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "model_loader/model_spec.h"
#include "nlohmann/json.hpp"

namespace rivulet {

inline nlohmann::json With(nlohmann::json config, const std::string& key, nlohmann::json value) {
  config[key] = std::move(value);
  return config;
}

inline nlohmann::json Without(nlohmann::json config, const std::string& key) {
  config.erase(key);
  return config;
}

// The spec of a config that is fine.
inline ModelSpec SpecOf(const nlohmann::json& config) {
  const auto spec = ParseModelSpec(config);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : ModelSpec();
}

// The message with which a config is refused.
inline std::string ErrorOf(const nlohmann::json& config) {
  const absl::Status status = ParseModelSpec(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

// The mixer of each layer.
inline std::vector<std::string> MixersOf(const nlohmann::json& config) {
  std::vector<std::string> types;
  for (const LayerSpec& layer : SpecOf(config).layers) types.push_back(layer.mixer_type);
  return types;
}

// Any JSON value at the config's keys and at `more`: a spec or a status, never an exception.
inline void ExpectSurvivesAnyValue(const nlohmann::json& config,
                                   const std::vector<std::string>& more) {
  const nlohmann::json values = nlohmann::json::parse(
      R"([null, true, 0, -3, 1.5, 1e300, "", "auto", [], [1, "x", null], {}, {"a": {"b": 1}}, [[]]])");
  std::vector<std::string> keys = more;
  for (const auto& [key, value] : config.items()) keys.push_back(key);
  std::mt19937 random(TestSeed());
  for (int i = 0; i < 3000; ++i) {
    nlohmann::json changed = config;
    for (unsigned changes = 1 + random() % 3; changes-- > 0;) {
      changed[keys[random() % keys.size()]] = values[random() % values.size()];
    }
    const absl::Status status = ParseModelSpec(changed).status();
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << changed;
  }
}

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_FORMAT_FIXTURE_H_
