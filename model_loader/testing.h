// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// For tests: makes .safetensors files, tokenizers and directories.
#ifndef RIVULET_MODEL_LOADER_TESTING_H_
#define RIVULET_MODEL_LOADER_TESTING_H_

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "kernels/base/test_directory.h"
#include "kernels/base/test_seed.h"

namespace rivulet {

struct TestTensor {
  std::string name;
  std::string dtype;
  std::vector<size_t> shape;
  std::string bytes;
};

inline size_t Elements(const std::vector<size_t>& shape) {
  size_t count = 1;
  for (const size_t size : shape) count *= size;
  return count;
}

inline TestTensor FloatTensor(const std::string& name, const std::vector<size_t>& shape,
                              float value = 0.25f) {
  const std::vector<float> values(Elements(shape), value);
  std::string bytes(values.size() * 4, '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return {name, "F32", shape, bytes};
}

inline std::string TensorJson(const TestTensor& tensor, size_t from, size_t to) {
  return absl::StrCat("\"", tensor.name, "\":{\"dtype\":\"", tensor.dtype, "\",\"shape\":[",
                      absl::StrJoin(tensor.shape, ","), "],\"data_offsets\":[", from, ",", to,
                      "]}");
}

// A file of this header and data, which need not be valid.
inline std::string RawSafetensors(const std::string& header, const std::string& data = "") {
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> 8 * i);
  return file + header + data;
}

inline std::string MakeSafetensors(const std::vector<TestTensor>& tensors) {
  std::string header, data;
  for (const TestTensor& tensor : tensors) {
    header += header.empty() ? "{" : ",";
    header += TensorJson(tensor, data.size(), data.size() + tensor.bytes.size());
    data += tensor.bytes;
  }
  return RawSafetensors(header.empty() ? "{}" : header + "}", data);
}

inline void WriteTestFile(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(file.flush()) << path;
}

// Trains a toy SentencePiece model of some 350 pieces as directory/tokenizer.model.
inline void TrainTestTokenizer(const std::string& directory, const std::string& options) {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    absl::StrAppend(&text, "The quick brown fox jumps over the lazy dog ", i, "\n");
  }
  WriteTestFile(directory + "/text", text);
  const std::string command =
      absl::StrCat("spm_train --input='", directory, "/text' --model_prefix='", directory,
                   "/tokenizer' --vocab_size=350 --hard_vocab_limit=false --minloglevel=2"
                   " --character_coverage=1.0 ",
                   options);
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_TESTING_H_
