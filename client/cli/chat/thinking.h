// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Tells a model's thinking, which stands between <think> and </think>, from its answer, in a text
// that arrives in pieces. The marks belong to the thinking. A piece that may be the beginning of a
// mark is held back.
//
// Threading: one thread.
#ifndef RIVULET_CLIENT_CLI_CHAT_THINKING_H_
#define RIVULET_CLIENT_CLI_CHAT_THINKING_H_

#include <string>
#include <string_view>
#include <vector>

namespace rivulet::cli {

class ThinkingSplitter {
 public:
  struct Part {
    std::string text;
    bool thinking = false;

    bool operator==(const Part&) const = default;
  };

  // A text begins. `thinking`: its first mark is </think>.
  void Begin(bool thinking);
  // What `piece` completes, in order; no part is empty.
  std::vector<Part> Add(std::string_view piece);
  // The end of the text: what was held back.
  std::vector<Part> Finish();

 private:
  void Append(std::string_view text, std::vector<Part>& parts) const;

  bool thinking_ = false;
  std::string held_;
};

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_CHAT_THINKING_H_
