// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// For tests: what a checkpoint's own library, or tests/parity/oracle.py, computes for it. Read from
// expected.safetensors of a fixture in tests/parity/fixtures or of a checkpoint of the same form.
#ifndef RIVULET_TESTS_PARITY_EXPECTED_H_
#define RIVULET_TESTS_PARITY_EXPECTED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model_loader/loaded_model.h"

namespace rivulet {

struct ExpectedOutputs {
  std::vector<uint32_t> input_ids;           // [T]
  std::vector<std::vector<float>> logprobs;  // [T][vocab], after each of input_ids
  std::vector<uint32_t> prompt_ids;          // the start of input_ids
  std::vector<uint32_t> greedy_ids;          // what greedy decoding appends to it
  // [T - 1][vocab], of the predictor after each of input_ids but the first; empty: none is expected
  std::vector<std::vector<float>> predicted_logprobs;
  size_t vocab() const { return logprobs.empty() ? 0 : logprobs[0].size(); }
};

// INVALID_ARGUMENT when the file does not have this form.
absl::StatusOr<ExpectedOutputs> ReadExpected(const std::string& directory);

// What a fixture of this name is made for: one norm over all groups of Mamba-2 for *_full_norm,
// levels that clamp for *_clamp.
LoadOptions FixtureOptions(const std::string& name);

// The directories below `parent` that hold a checkpoint with expected outputs, sorted.
std::vector<std::string> CheckpointDirectories(const std::string& parent);

// Those of tests/parity/fixtures.
std::vector<std::string> FixtureDirectories();

// The same, and those of the folder that RIVULET_PARITY_DIR names if it is set.
std::vector<std::string> ParityDirectories();

}  // namespace rivulet

#endif  // RIVULET_TESTS_PARITY_EXPECTED_H_
