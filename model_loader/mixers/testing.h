// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// For tests of the mixers' parsers: keys in, a config or an error out.
#ifndef RIVULET_MODEL_LOADER_MIXERS_TESTING_H_
#define RIVULET_MODEL_LOADER_MIXERS_TESTING_H_

#include <string>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "kernels/base/strings.h"
#include "kernels/mixers/random_parameters.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {

template <typename Config>
using ParseFunction = Config (*)(ConfigReader& config, size_t hidden);

template <typename Config>
absl::StatusOr<Config> ParseKeys(ParseFunction<Config> parse, const nlohmann::json& keys,
                                 size_t hidden) {
  ConfigReader reader(keys);
  Config config = parse(reader, hidden);
  if (reader.ok()) return config;
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument);
  return reader.status();
}

// The message of the error that these keys give, or "no error".
template <typename Config>
std::string ParseError(ParseFunction<Config> parse, const nlohmann::json& keys, size_t hidden) {
  const auto config = ParseKeys(parse, keys, hidden);
  return config.ok() ? "no error" : std::string(ToStd(config.status().message()));
}

// The message of the error with which the layer of these keys refuses a bf16 state, or "no error".
template <typename Config>
std::string BFloat16Error(ParseFunction<Config> parse, const nlohmann::json& keys, size_t hidden) {
  RandomParameters parameters(0, "", DType::kFloat32);
  const auto mixer = MakeMixer(ParseKeys(parse, keys, hidden).value(),
                               {hidden, parameters, {.state_dtype = DType::kBFloat16}});
  if (mixer.ok()) return "no error";
  EXPECT_EQ(mixer.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(ToStd(mixer.status().message()));
}

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_MIXERS_TESTING_H_
