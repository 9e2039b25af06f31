// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/pattern.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/thread_seconds.h"

namespace rivulet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<const Pattern> Compile(const std::string& expression) {
  auto pattern = Pattern::Compile(expression);
  EXPECT_TRUE(pattern.ok()) << pattern.status();
  return pattern.ok() ? *std::move(pattern) : nullptr;
}

std::vector<std::string> Matches(const std::string& expression, const std::string& text) {
  const auto pattern = Compile(expression);
  if (pattern == nullptr) return {};
  PatternScratch scratch(text.size());
  std::vector<TextRange> ranges;
  EXPECT_TRUE(pattern->FindAll(text, scratch, &ranges).ok());
  std::vector<std::string> matches;
  for (const TextRange& range : ranges) {
    matches.push_back(text.substr(range.begin, range.end - range.begin));
  }
  return matches;
}

TEST(PatternTest, SplitsAsGpt2Does) {
  const std::string gpt2 =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  EXPECT_THAT(Matches(gpt2, "It's  naïve: 42 日本\n "),
              ElementsAre("It", "'s", " ", " naïve", ":", " 42", " 日本", "\n "));
}

TEST(PatternTest, KnowsLettersThatAreNewerThanTheLibrary) {
  EXPECT_THAT(Matches(R"(\p{Lo}+)", "a\U00031350\U000105C0b"), ElementsAre("\U00031350\U000105C0"));
  EXPECT_THAT(Matches(R"([\p{L}&&[^\p{Han}]]+)", "a漢b"), ElementsAre("a", "b"));
  EXPECT_THAT(Matches(R"(\P{L})", "a1"), ElementsAre("1"));
  EXPECT_THAT(Matches(R"(\p{^L}|\p{Lowercase_Letter}b)", "a1bab"), ElementsAre("1", "ab"));
}

TEST(PatternTest, IgnoresTheCaseOfAsciiLetters) {
  EXPECT_THAT(Matches("(?i:'s|'K)", "'S's'\u017f'k'\u212a'x"),
              ElementsAre("'S", "'s", "'\u017f", "'k", "'\u212a"));
  EXPECT_THAT(Matches("(?i)[a-c]+d", "aBCDd"), ElementsAre("aBCD"));
}

TEST(PatternTest, RepeatsAsRubyDoes) {
  EXPECT_THAT(Matches("a{2}+", "aaaaa"), ElementsAre("aaaa"));  // not possessive
  EXPECT_THAT(Matches("a{,2}b", "aaab"), ElementsAre("aab"));
  EXPECT_THAT(Matches("a{1,2}?", "aaa"), ElementsAre("a", "a", "a"));
  EXPECT_THAT(Matches("x{", "x{"), ElementsAre("x{"));
  EXPECT_THAT(Matches("a?+b|a", "ab"), ElementsAre("ab"));
  EXPECT_THAT(Matches("(?>a+)b|c", "aabc"), ElementsAre("aab", "c"));
}

TEST(PatternTest, LooksAround) {
  EXPECT_THAT(Matches("(?<=a)b", "bab"), ElementsAre("b"));
  EXPECT_THAT(Matches("^b|c$", "b\nb\nc\n"), ElementsAre("b", "b", "c"));
  EXPECT_THAT(Matches(R"(\bé+\b)", "é aé éé"), ElementsAre("é", "éé"));
  EXPECT_THAT(Matches(".", "a\n\u00e9"), ElementsAre("a", "\u00e9"));
  EXPECT_THAT(Matches("(?m:.)", "\n"), ElementsAre("\n"));
}

TEST(PatternTest, FindsEmptyMatchesOnce) {
  EXPECT_THAT(Matches("a*", "baac"), ElementsAre("", "aa", ""));
  EXPECT_THAT(Matches("", "ab"), ElementsAre("", "", ""));
}

TEST(PatternTest, RefusesByName) {
  const std::pair<const char*, const char*> kCases[] = {
      {"(a)\\1", "the escape \\1"},          {"\\X", "the escape \\X"},
      {"\\p{NoSuchScript}", "NoSuchScript"}, {"[[:alpha:]]", "POSIX"},
      {"(?x)a", "this kind of group"},       {"(?(1)a)", "this kind of group"},
      {"(?i)ß", "outside of ASCII"},         {"(?i:ss)", "one letter may equal"},
      {"a(?i)b", "in the middle"},           {"[]a]", "at its start"},
  };
  for (const auto& [expression, reason] : kCases) {
    const auto pattern = Pattern::Compile(expression);
    EXPECT_EQ(pattern.status().code(), absl::StatusCode::kUnimplemented) << expression;
    EXPECT_THAT(pattern.status().ToString(), HasSubstr(reason));
    EXPECT_THAT(pattern.status().ToString(), HasSubstr(expression));
  }
  for (const char* wrong :
       {"(a", "a)", "[a", "*a", "[b-a]", "\\p{L", "\\", "\\x{110000}", "a**+*("}) {
    EXPECT_EQ(Pattern::Compile(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
  EXPECT_FALSE(Pattern::Compile(std::string(100 << 10, 'a')).ok());
  EXPECT_FALSE(Pattern::Compile(std::string(5000, '(') + std::string(5000, ')')).ok());
  EXPECT_FALSE(Pattern::Compile("((a{1000}){1000}){1000}").ok());
}

TEST(PatternTest, BoundsTheWorkOfCatastrophicExpressions) {
  for (const char* expression : {"(a+)+$b", "(a|a)*b", "a*a*a*a*a*b", "(a?){30}a{30}b"}) {
    const auto pattern = Compile(expression);
    ASSERT_NE(pattern, nullptr);
    const std::string text = std::string(3000, 'a') + "cb";  // PCRE2 looks for the b at once
    PatternScratch scratch(text.size());
    std::vector<TextRange> matches;
    const absl::Status status = pattern->FindAll(text, scratch, &matches);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << expression;
    EXPECT_THAT(status.ToString(), HasSubstr("backtracks too much"));
  }
}

// PCRE2 counts few steps of these: it looks through a run of one character without counting.
TEST(PatternTest, BoundsTheTimeOfRepeatsOfOneCharacter) {
  struct Case {
    const char* expression;
    size_t length;
  };
  for (const auto& [expression, length] :
       {Case{"a{0,60000}a{0,60000}b", 40000}, Case{"a*a*b", 1 << 20}, Case{"[ab]*[ac]*a*d", 200000},
        Case{"a*?a*?b", 200000}}) {
    const auto pattern = Compile(expression);
    ASSERT_NE(pattern, nullptr);
    const std::string text = std::string(length, 'a') + "cbd";
    PatternScratch scratch(text.size());
    std::vector<TextRange> matches;
    const double started = ThreadSeconds();
    const absl::Status status = pattern->FindAll(text, scratch, &matches);
    EXPECT_LT(ThreadSeconds() - started, 10) << expression;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << expression;
  }
}

// Real expressions look far ahead in such texts.
TEST(PatternTest, TakesLongRuns) {
  const std::string gpt4 =
      R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string spaces(1 << 20, ' ');
  EXPECT_EQ(Matches(gpt4, spaces + "x").size(), 2u);
  EXPECT_EQ(Matches(gpt4, std::string(1 << 20, 'x')).size(), 1u);
  std::string lines;
  for (int i = 0; i < 100000; ++i) lines += " \n";
  EXPECT_EQ(Matches(gpt4, lines).size(), 1u);
}

}  // namespace
}  // namespace rivulet
