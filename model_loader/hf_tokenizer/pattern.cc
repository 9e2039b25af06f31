// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/pattern.h"

#include <algorithm>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status.h"
#include "kernels/base/thread_seconds.h"
#include "model_loader/hf_tokenizer/pattern_syntax.h"
#include "model_loader/hf_tokenizer/utf8_text.h"

namespace rivulet {
namespace {

constexpr size_t kLongestPattern = 64 << 10;
// An attempt at one place begins with few steps and gets more as it needs them, so that what it
// took is known to a factor of kMoreSteps. Oniguruma itself gives up after ten million.
constexpr uint64_t kFirstSteps = 256;
constexpr uint64_t kMoreSteps = 8;
// An attempt that looks through the rest of the text a few times is as it should be.
constexpr uint64_t kMostSteps = uint64_t{1} << 20;
constexpr uint64_t kMostStepsOfCharacter = 16;
constexpr uint64_t kLargestLimit = UINT32_MAX;  // that PCRE2 can be told
constexpr uint64_t kBudget = uint64_t{1} << 28;
constexpr uint64_t kBudgetOfByte = 1024;
constexpr size_t kStackBytes = 16 << 20;  // reserved, not committed
// Ten times what the slowest tokenizer that we test takes for a byte.
constexpr double kSeconds = 1;
constexpr double kSecondsOfByte = 2e-6;
constexpr uint32_t kAttemptsBetweenClocks = 32;  // a look costs as much as an attempt

// The set as a class of PCRE2.
std::string ClassOf(const std::vector<uint8_t>& members) {
  if (members.empty()) return "(?!)";
  std::string text = "[";
  for (const uint8_t member : members) {
    absl::StrAppend(&text, "\\x", absl::Hex(member, absl::kZeroPad2));
  }
  return text + "]";
}

std::string ClassPattern(const PatternParts& parts, const CodePointClasses& classes) {
  std::string pattern;
  for (const PatternPart& part : parts.parts) {
    pattern += part.text.empty() ? ClassOf(classes.OfSet(part.set)) : part.text;
  }
  return pattern;
}

absl::Status About(const std::string& expression, const absl::Status& status) {
  const absl::string_view shown = absl::string_view(expression).substr(0, 200);
  return absl::Status(status.code(), absl::StrCat("the regular expression ", shown,
                                                  shown.size() < expression.size() ? "..." : "",
                                                  ": ", status.message()));
}

pcre2_code* CompileOrNull(const std::string& pattern, uint32_t options, std::string* problem) {
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_NEVER_UTF | PCRE2_NO_AUTO_CAPTURE | options, &error, &place, nullptr);
  if (code != nullptr) return code;
  PCRE2_UCHAR message[128];
  pcre2_get_error_message(error, message, sizeof(message));
  *problem = reinterpret_cast<const char*>(message);
  return nullptr;
}

}  // namespace

PatternScratch::PatternScratch(size_t text_bytes)
    : data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(32 << 10, kStackBytes, nullptr)),
      end_(pcre2_get_ovector_pointer(data_) + 1),
      budget_(kBudget + kBudgetOfByte * text_bytes),
      end_of_time_(ThreadSeconds() + kSeconds + kSecondsOfByte * static_cast<double>(text_bytes)) {
  RIVULET_CHECK(data_ != nullptr && context_ != nullptr, "no memory for PCRE2");
  if (stack_ != nullptr) pcre2_jit_stack_assign(context_, nullptr, stack_);
  pcre2_set_heap_limit(context_, kStackBytes / 1024);
}

PatternScratch::~PatternScratch() {
  pcre2_jit_stack_free(stack_);
  pcre2_match_context_free(context_);
  pcre2_match_data_free(data_);
}

double PatternScratch::SecondsLeft() const { return end_of_time_ - ThreadSeconds(); }

// Called for each attempt. A thread has not run longer than the clock on the wall.
inline bool PatternScratch::IsInTime() {
  if (++attempts_ % kAttemptsBetweenClocks != 0) return true;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return true;
  const std::chrono::duration<double> left(SecondsLeft());
  next_look_ = now + std::chrono::duration_cast<std::chrono::steady_clock::duration>(left);
  return left.count() >= 0;
}

Pattern::Pattern(CodePointClasses classes, std::string expression)
    : classes_(std::move(classes)), expression_(std::move(expression)) {
  starts_.fill(true);
}

Pattern::~Pattern() { pcre2_code_free(code_); }

absl::StatusOr<std::unique_ptr<const Pattern>> Pattern::Compile(const std::string& expression) {
  if (expression.size() > kLongestPattern) {
    return absl::InvalidArgumentError(absl::StrCat("a regular expression of ", expression.size(),
                                                   " bytes: at most ", kLongestPattern));
  }
  const auto parts = ReadPattern(expression);
  if (!parts.ok()) return About(expression, parts.status());
  auto classes = CodePointClasses::Make(parts->sets);
  if (!classes.ok()) return About(expression, classes.status());
  const std::string pattern = ClassPattern(*parts, *classes);
  std::unique_ptr<Pattern> result(new Pattern(*std::move(classes), expression));
  const absl::Status compiled = result->CompileClasses(pattern);
  if (!compiled.ok()) return About(expression, compiled);
  return result;
}

absl::Status Pattern::CompileClasses(const std::string& pattern) {
  std::string problem;
  code_ = CompileOrNull(pattern, PCRE2_ANCHORED, &problem);
  if (code_ == nullptr) return absl::InvalidArgumentError(problem);
  // Without it (no memory that may be executed) PCRE2 interprets: slower, the same matches.
  const bool compiled = pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE) == 0;
  match_ = compiled ? pcre2_jit_match : pcre2_match;
  FindStarts(pattern);
  return absl::OkStatus();
}

// PCRE2 works out where a match may begin only for patterns that are not anchored.
void Pattern::FindStarts(const std::string& pattern) {
  std::string problem;
  pcre2_code* const searching = CompileOrNull(pattern, 0, &problem);
  if (searching == nullptr) return;
  const uint8_t* bits = nullptr;
  uint32_t may_be_empty = 1, kind = 0, unit = 0;
  pcre2_pattern_info(searching, PCRE2_INFO_MATCHEMPTY, &may_be_empty);
  pcre2_pattern_info(searching, PCRE2_INFO_FIRSTBITMAP, &bits);
  pcre2_pattern_info(searching, PCRE2_INFO_FIRSTCODETYPE, &kind);
  pcre2_pattern_info(searching, PCRE2_INFO_FIRSTCODEUNIT, &unit);
  may_be_empty_ = may_be_empty != 0;
  for (uint32_t i = 0; i < 256 && !may_be_empty_; ++i) {
    if (bits != nullptr) starts_[i] = (bits[i / 8] >> (i % 8) & 1) != 0;
    if (bits == nullptr && kind == 1) starts_[i] = i == unit;
  }
  pcre2_code_free(searching);
}

// One attempt of so many steps. It gives up where they are too few. Patterns are anchored, so a
// match begins at `begin`.
inline Pattern::Outcome Pattern::Try(size_t begin, uint64_t steps, PatternScratch& scratch) const {
  if (scratch.limit_ != steps) {
    scratch.limit_ = steps;
    pcre2_set_match_limit(scratch.context_, static_cast<uint32_t>(std::min(steps, kLargestLimit)));
  }
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(scratch.classes_.data());
  const int found =
      match_(code_, subject, scratch.classes_.size(), begin, 0, scratch.data_, scratch.context_);
  if (found >= 0) return Outcome::kMatch;
  if (found == PCRE2_ERROR_NOMATCH) return Outcome::kNoMatch;
  return found == PCRE2_ERROR_MATCHLIMIT ? Outcome::kNeedsMore : Outcome::kGaveUp;
}

// An attempt with kMoreSteps times as many takes at most about as many times as long.
Pattern::Outcome Pattern::TryWithMore(size_t begin, PatternScratch& scratch) const {
  const uint64_t most = kMostSteps + kMostStepsOfCharacter * uint64_t{scratch.classes_.size()};
  double took = 0;
  for (uint64_t steps = kFirstSteps; steps < most && scratch.budget_ >= steps;) {
    if (scratch.SecondsLeft() < kMoreSteps * took) break;
    scratch.budget_ -= steps;
    steps = std::min(steps * kMoreSteps, most);
    const double started = ThreadSeconds();
    const Outcome outcome = Try(begin, steps, scratch);
    took = ThreadSeconds() - started;
    if (outcome != Outcome::kNeedsMore) return outcome;
  }
  return Outcome::kGaveUp;
}

// In characters. Moves `begin` to the match.
inline Pattern::Outcome Pattern::MatchFrom(size_t* begin, PatternScratch& scratch) const {
  const std::string& classes = scratch.classes_;
  for (size_t i = *begin; i < classes.size() || (i == classes.size() && may_be_empty_); ++i) {
    if (i < classes.size() && !starts_[static_cast<uint8_t>(classes[i])]) continue;
    if (!scratch.IsInTime()) return Outcome::kGaveUp;
    Outcome outcome = Try(i, kFirstSteps, scratch);
    if (outcome == Outcome::kNeedsMore) outcome = TryWithMore(i, scratch);
    *begin = i;
    if (outcome != Outcome::kNoMatch) return outcome;
  }
  return Outcome::kNoMatch;
}

absl::Status Pattern::TooMuch() const {
  return About(expression_, absl::InvalidArgumentError(
                                "it backtracks too much on this text; shorten the text, or the "
                                "model's tokenizer.json needs another expression"));
}

absl::Status Pattern::FindAll(std::string_view text, PatternScratch& scratch,
                              std::vector<TextRange>* matches) const {
  classes_.Map(text, &scratch.classes_);
  const bool ascii = scratch.classes_.size() == text.size();
  size_t characters = 0, bytes = 0;  // the same place in the text
  const auto bytes_at = [&](size_t character) {
    if (ascii) return character;
    for (; characters < character; ++characters) bytes += Utf8Length(text[bytes]);
    return bytes;
  };
  size_t last_end = SIZE_MAX;
  for (size_t begin = 0; begin <= scratch.classes_.size();) {
    const Outcome outcome = MatchFrom(&begin, scratch);
    if (outcome == Outcome::kNoMatch) break;
    if (outcome != Outcome::kMatch) return TooMuch();
    const size_t end = *scratch.end_;
    if (begin == end && end == last_end) {
      ++begin;
      continue;
    }
    const size_t begin_byte = bytes_at(begin);
    matches->push_back({begin_byte, bytes_at(end)});
    begin = last_end = end;
  }
  return absl::OkStatus();
}

}  // namespace rivulet
