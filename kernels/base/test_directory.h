// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Directories for the files of a test. For tests only.
#ifndef RIVULET_KERNELS_BASE_TEST_DIRECTORY_H_
#define RIVULET_KERNELS_BASE_TEST_DIRECTORY_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace rivulet {

// Removes directories when the program exits.
class DirectoriesOfTests {
 public:
  ~DirectoriesOfTests() {
    std::error_code ignored;
    for (const std::string& path : paths_) std::filesystem::remove_all(path, ignored);
  }
  void Add(const std::string& path) { paths_.push_back(path); }

 private:
  std::vector<std::string> paths_;
};

// A new empty directory, named after the test or the suite that runs. It is removed, with all that
// is in it, when the test program exits.
inline std::string TestDirectory() {
  static DirectoriesOfTests made;
  const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
  std::string test = info == nullptr ? "suite" : info->test_suite_name();
  for (char& c : test) c = c == ' ' || c == '/' ? '_' : c;
  std::string path = testing::TempDir() + "rivulet." + test + ".XXXXXX";
  if (mkdtemp(path.data()) == nullptr) ADD_FAILURE() << "cannot make " << path;
  made.Add(path);
  return path;
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_TEST_DIRECTORY_H_
