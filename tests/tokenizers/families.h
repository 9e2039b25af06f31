// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The tokenizers that make_fixtures.py has trained.
#ifndef RIVULET_TESTS_TOKENIZERS_FAMILIES_H_
#define RIVULET_TESTS_TOKENIZERS_FAMILIES_H_

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace rivulet {

inline std::string TokenizerFixtures() {
  const char* const root = std::getenv("RIVULET_SOURCE_DIR");
  return std::string(root == nullptr ? "." : root) + "/tests/tokenizers/fixtures";
}

inline std::vector<std::string> TokenizerFamilies() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(TokenizerFixtures(), error)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace rivulet

#endif  // RIVULET_TESTS_TOKENIZERS_FAMILIES_H_
