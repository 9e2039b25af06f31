// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Tells what a model thinks from what it answers, in a text that arrives in pieces: thinking stands
// at the beginning, between <think> and </think>. The marks, white space before the first and line
// ends after each belong to neither. A later <think> is part of the answer.
//
// Threading: one thread.
#ifndef RIVULET_SERVER_TEXT_THINKING_SPLITTER_H_
#define RIVULET_SERVER_TEXT_THINKING_SPLITTER_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace rivulet {

class ThinkingSplitter {
 public:
  struct Parts {
    std::string thinking;
    std::string answer;
  };

  // `starts_thinking`: the prompt has the opening mark, and the text begins behind it.
  explicit ThinkingSplitter(bool starts_thinking)
      : phase_(starts_thinking ? Phase::kThinkingBegins : Phase::kBegins) {}

  // What `piece` completes; what may become a mark is held back.
  Parts Add(std::string_view piece);
  // The end of the text: what was held back.
  Parts Finish();

 private:
  enum class Phase : uint8_t { kBegins, kThinkingBegins, kThinks, kAnswerBegins, kAnswers };

  // False when more text is needed.
  bool Step(Parts& parts);
  bool FindOpening(Parts& parts);
  bool SkipLineEnds(Phase next);
  bool FindClosing(Parts& parts);

  Phase phase_;
  std::string held_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_TEXT_THINKING_SPLITTER_H_
