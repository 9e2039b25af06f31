// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The checkpoints that a device's tests run on.
#ifndef RIVULET_SERVER_ENGINE_CHECKPOINT_FOLDERS_H_
#define RIVULET_SERVER_ENGINE_CHECKPOINT_FOLDERS_H_

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace rivulet {

// The folders with a config.json in those that RIVULET_MODELS names, separated by colons; without
// it, in those of `otherwise`. Sorted.
inline std::vector<std::string> CheckpointFolders(const char* otherwise) {
  const char* const given = std::getenv("RIVULET_MODELS");
  std::vector<std::string> result;
  for (const auto& folder : absl::StrSplit(given == nullptr ? otherwise : given, ':')) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(std::string(folder), error)) {
      if (std::filesystem::exists(entry.path() / "config.json")) result.push_back(entry.path());
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

// The name of a test on such a folder: that of the folder and its number.
template <typename Info>
std::string CheckpointTestName(const Info& info) {
  std::string name = std::filesystem::path(info.param).filename();
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name + "_" + std::to_string(info.index);
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_CHECKPOINT_FOLDERS_H_
