// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A regular expression of a tokenizer.json, matched by PCRE2 on classes of characters
// (code_point_classes.h): what \p{L} has comes from our tables, so that ids do not depend on the
// version of the library.
//
// The work for a text is bounded, in steps and in the thread's processor time: an expression that
// backtracks too much ends in INVALID_ARGUMENT. PCRE2 counts as one step what may look through the
// rest of the text, such as the last a* of a*a*b, so steps alone bound nothing.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_PATTERN_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_PATTERN_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model_loader/hf_tokenizer/code_point_classes.h"
#include "model_loader/marked_text.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace rivulet {

// What matching needs besides the pattern. One for each text; any number of patterns may use it in
// turn, all in the thread that made it. It holds what is left of the steps and of the time that the
// text may take.
class PatternScratch {
 public:
  // For a text of this many bytes. The time begins here and includes what the thread does besides.
  explicit PatternScratch(size_t text_bytes);
  ~PatternScratch();
  PatternScratch(const PatternScratch&) = delete;
  PatternScratch& operator=(const PatternScratch&) = delete;

 private:
  friend class Pattern;
  double SecondsLeft() const;
  bool IsInTime();

  std::string classes_;
  pcre2_real_match_data_8* data_;
  pcre2_real_match_context_8* context_;
  pcre2_real_jit_stack_8* stack_;
  const size_t* end_;   // in data_: where the last match ends
  uint64_t limit_ = 0;  // of steps that context_ was told; 0: none yet
  uint64_t budget_;
  uint32_t attempts_ = 0;
  double end_of_time_;                               // of the thread's clock, in seconds
  std::chrono::steady_clock::time_point next_look_;  // at the thread's clock, which is slow to read
};

class Pattern {
 public:
  // INVALID_ARGUMENT or UNIMPLEMENTED name the expression and what is wrong with it.
  static absl::StatusOr<std::unique_ptr<const Pattern>> Compile(const std::string& expression);
  ~Pattern();
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  // Appends to `matches` all matches in `text` (valid UTF-8), from left to right, without overlaps.
  // An empty match right after another does not count.
  absl::Status FindAll(std::string_view text, PatternScratch& scratch,
                       std::vector<TextRange>* matches) const;

 private:
  Pattern(CodePointClasses classes, std::string expression);
  absl::Status CompileClasses(const std::string& pattern);
  void FindStarts(const std::string& pattern);
  enum class Outcome { kMatch, kNoMatch, kNeedsMore, kGaveUp };
  Outcome Try(size_t begin, uint64_t steps, PatternScratch& scratch) const;
  Outcome TryWithMore(size_t begin, PatternScratch& scratch) const;
  Outcome MatchFrom(size_t* begin, PatternScratch& scratch) const;
  absl::Status TooMuch() const;

  const CodePointClasses classes_;
  const std::string expression_;
  pcre2_real_code_8* code_ = nullptr;
  int (*match_)(const pcre2_real_code_8*, const unsigned char*, size_t, size_t, uint32_t,
                pcre2_real_match_data_8*, pcre2_real_match_context_8*) = nullptr;
  std::array<bool, 256> starts_;  // classes that a match may begin with
  bool may_be_empty_ = true;
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_PATTERN_H_
