// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A vocabulary of any size, as large as those of real models, for benchmarks of structured output.
#ifndef RIVULET_SERVER_GRAMMAR_LETTER_VOCABULARY_FIXTURE_H_
#define RIVULET_SERVER_GRAMMAR_LETTER_VOCABULARY_FIXTURE_H_

#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace rivulet {

// All bytes, and tokens of 2 to 8 letters, many with a space before or a sign behind.
inline std::vector<std::string> LetterVocabulary(size_t size) {
  std::mt19937 random(1);
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  while (tokens.size() < size) {
    std::string token = random() % 2 == 0 ? " " : "";
    for (size_t i = 1 + random() % 8; i > 0; --i) token += static_cast<char>('a' + random() % 26);
    if (random() % 16 == 0) token += "\",:}]."[random() % 6];
    tokens.push_back(token);
  }
  return tokens;
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_GRAMMAR_LETTER_VOCABULARY_FIXTURE_H_
