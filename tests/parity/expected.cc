// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/parity/expected.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "model_loader/safetensors.h"

namespace rivulet {
namespace {

absl::StatusOr<const StoredTensor*> Find(const SafetensorsCheckpoint& file, const std::string& name,
                                         const std::string& dtype) {
  const StoredTensor* tensor = file.Find(name);
  if (tensor != nullptr && tensor->dtype == dtype) return tensor;
  return absl::InvalidArgumentError(
      absl::StrCat("expected.safetensors has no tensor ", name, " of ", dtype));
}

absl::StatusOr<std::vector<uint32_t>> ReadIds(const SafetensorsCheckpoint& file,
                                              const std::string& name) {
  RIVULET_ASSIGN_OR_RETURN(const StoredTensor* tensor, Find(file, name, "I32"));
  std::vector<uint32_t> ids(tensor->elements);
  std::memcpy(ids.data(), tensor->data, tensor->bytes);
  return ids;
}

// Logits → log-probabilities, in fp64.
std::vector<float> LogSoftmax(const std::vector<float>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  std::vector<float> result;
  result.reserve(logits.size());
  for (const float logit : logits) {
    result.push_back(static_cast<float>(logit - largest - std::log(sum)));
  }
  return result;
}

// [rows][vocab] of logits [1, rows, vocab].
absl::StatusOr<std::vector<std::vector<float>>> ReadLogprobs(const SafetensorsCheckpoint& file,
                                                             const std::string& name, size_t rows) {
  RIVULET_ASSIGN_OR_RETURN(const StoredTensor* logits, Find(file, name, "F32"));
  if (logits->shape.size() != 3 || logits->shape[1] != rows) {
    return absl::InvalidArgumentError(absl::StrCat(name, " have shape ", ShapeString(logits->shape),
                                                   ", expected [1, ", rows, ", vocab]"));
  }
  std::vector<std::vector<float>> logprobs;
  std::vector<float> row(logits->shape[2]);
  for (size_t t = 0; t < rows; ++t) {
    std::memcpy(row.data(), logits->data + t * row.size() * 4, row.size() * 4);
    logprobs.push_back(LogSoftmax(row));
  }
  return logprobs;
}

}  // namespace

absl::StatusOr<ExpectedOutputs> ReadExpected(const std::string& directory) {
  RIVULET_ASSIGN_OR_RETURN(const auto file,
                           SafetensorsCheckpoint::OpenFile(directory + "/expected.safetensors"));
  ExpectedOutputs expected;
  RIVULET_ASSIGN_OR_RETURN(expected.input_ids, ReadIds(*file, "input_ids"));
  RIVULET_ASSIGN_OR_RETURN(expected.prompt_ids, ReadIds(*file, "prompt_ids"));
  RIVULET_ASSIGN_OR_RETURN(expected.greedy_ids, ReadIds(*file, "greedy_ids"));
  const size_t tokens = expected.input_ids.size();
  RIVULET_ASSIGN_OR_RETURN(expected.logprobs, ReadLogprobs(*file, "logits", tokens));
  if (file->Find("predicted_logits") == nullptr) return expected;
  RIVULET_ASSIGN_OR_RETURN(expected.predicted_logprobs,
                           ReadLogprobs(*file, "predicted_logits", tokens - 1));
  return expected;
}

LoadOptions FixtureOptions(const std::string& name) {
  LoadOptions options;
  if (name.ends_with("_full_norm")) options.config_override = R"({"norm_groups": 1})";
  if (name.ends_with("_clamp")) options.mixer.level_overflow = LevelOverflow::kClamp;
  return options;
}

std::vector<std::string> CheckpointDirectories(const std::string& parent) {
  std::vector<std::string> directories;
  for (const auto& entry : std::filesystem::directory_iterator(parent)) {
    if (std::filesystem::exists(entry.path() / "expected.safetensors")) {
      directories.push_back(entry.path().string());
    }
  }
  std::sort(directories.begin(), directories.end());
  return directories;
}

std::vector<std::string> FixtureDirectories() {
  const char* const root = std::getenv("RIVULET_SOURCE_DIR");
  return CheckpointDirectories(std::string(root != nullptr ? root : ".") +
                               "/tests/parity/fixtures");
}

std::vector<std::string> ParityDirectories() {
  std::vector<std::string> directories = FixtureDirectories();
  if (const char* const more = std::getenv("RIVULET_PARITY_DIR"); more != nullptr) {
    const std::vector<std::string> others = CheckpointDirectories(more);
    directories.insert(directories.end(), others.begin(), others.end());
  }
  return directories;
}

}  // namespace rivulet
