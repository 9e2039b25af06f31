// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The tokenizer of a model's directory, on a text or as a filter.
//
//   rivulet-tokenizer-bench --model DIR --text FILE     MB/s of Encode, of one core's time
//   rivulet-tokenizer-bench --model DIR --pipe          answers requests
//   (tests/tokenizers/compare.py)
//
// A request of --pipe is a letter, the number of bytes that follow (4 bytes, little-endian) and
// those bytes: E and R are a text to encode (R: rendered by a template), D are ids of 4 bytes to
// decode. The answer is a letter (I: ids, T: text, X: error), a number of bytes, and those.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/statusor.h"
#include "kernels/base/status.h"
#include "model_loader/tokenizer.h"
#include "server/text/detokenizer.h"

ABSL_FLAG(std::string, model, "", "a model's directory; only its tokenizer's files are read");
ABSL_FLAG(std::string, text, "", "file with a text to encode");
ABSL_FLAG(bool, pipe, false, "answer requests on standard input");
ABSL_FLAG(uint32_t, repeats, 5, "the best of so many runs counts");

namespace rivulet {
namespace {

void Answer(char kind, const void* data, size_t size) {
  const auto bytes = static_cast<uint32_t>(size);
  std::cout.put(kind);
  std::cout.write(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  std::cout.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
}

void AnswerIds(const absl::StatusOr<std::vector<uint32_t>>& ids) {
  if (ids.ok()) return Answer('I', ids->data(), ids->size() * sizeof(uint32_t));
  const std::string error = ids.status().ToString();
  Answer('X', error.data(), error.size());
}

// One token at a time, as the server does.
void AnswerText(const Tokenizer& tokenizer, const std::string& bytes) {
  std::vector<uint32_t> ids(bytes.size() / sizeof(uint32_t));
  std::memcpy(ids.data(), bytes.data(), ids.size() * sizeof(uint32_t));
  Detokenizer detokenizer(tokenizer, /*starts_text=*/true);
  std::string text;
  for (const uint32_t id : ids) text += detokenizer.Append({&id, 1});
  text += detokenizer.Finish();
  Answer('T', text.data(), text.size());
}

void AnswerAll(const Tokenizer& tokenizer) {
  char kind = 0;
  uint32_t size = 0;
  while (std::cin.get(kind) && std::cin.read(reinterpret_cast<char*>(&size), sizeof(size))) {
    std::string bytes(size, '\0');
    if (!std::cin.read(bytes.data(), size)) break;
    if (kind == 'E') AnswerIds(tokenizer.Encode(bytes));
    if (kind == 'R') AnswerIds(tokenizer.EncodeRendered(bytes));
    if (kind == 'D') AnswerText(tokenizer, bytes);
  }
  std::cout.flush();
}

absl::Status Measure(const Tokenizer& tokenizer) {
  std::ifstream file(absl::GetFlag(FLAGS_text), std::ios::binary);
  if (!file) return absl::NotFoundError("give --text FILE or --pipe");
  std::stringstream text;
  text << file.rdbuf();
  const std::string bytes = text.str();
  double best = 0;
  size_t tokens = 0;
  for (uint32_t i = 0; i < absl::GetFlag(FLAGS_repeats); ++i) {
    const std::clock_t begin = std::clock();
    RIVULET_ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, tokenizer.Encode(bytes));
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    best = std::max(best, static_cast<double>(bytes.size()) / 1e6 / seconds);
    tokens = ids.size();
  }
  std::printf("%zu bytes, %zu tokens, %.1f MB/s\n", bytes.size(), tokens, best);
  return absl::OkStatus();
}

absl::Status Run() {
  RIVULET_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                           LoadTokenizer(absl::GetFlag(FLAGS_model)));
  if (!absl::GetFlag(FLAGS_pipe)) return Measure(*tokenizer);
  AnswerAll(*tokenizer);
  return absl::OkStatus();
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Encodes a text, or answers requests, with a model's tokenizer.");
  absl::ParseCommandLine(argc, argv);
  std::ios::sync_with_stdio(false);
  const absl::Status status = rivulet::Run();
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
