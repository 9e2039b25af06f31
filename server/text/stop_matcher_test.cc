// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/text/stop_matcher.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"

namespace rivulet {
namespace {

struct Outcome {
  std::string text;
  int matched = -1;
  bool operator==(const Outcome&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  return out << '"' << outcome.text << "\" stop " << outcome.matched;
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// The definition: the first end of a match, there the longest string, of equals the first listed.
// Matches that end within the first `armed_from` bytes do not count.
Outcome Model(const std::vector<std::string>& stops, const std::string& text, bool include_stop,
              size_t armed_from) {
  for (size_t end = armed_from + 1; end <= text.size(); ++end) {
    const std::string seen = text.substr(0, end);
    int best = -1;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (EndsWith(seen, stops[i]) && (best < 0 || stops[i].size() > stops[best].size())) best = i;
    }
    if (best >= 0) {
      return {include_stop ? seen : seen.substr(0, end - stops[best].size()), best};
    }
  }
  return {text, -1};
}

// How many bytes of `text` may be shown when it may go on: all but its longest suffix that starts a
// stop string.
size_t Showable(const std::vector<std::string>& stops, const std::string& text) {
  size_t held = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size(); ++n) {
      if (EndsWith(text, stop.substr(0, n))) held = std::max(held, n);
    }
  }
  return text.size() - held;
}

Outcome RunMatcher(StopMatcher& matcher, const std::string& text) {
  Outcome outcome;
  outcome.text = matcher.Append(text);
  outcome.text += matcher.Finish();
  if (matcher.matched()) outcome.matched = static_cast<int>(matcher.matched_index());
  return outcome;
}

Outcome RunOnce(std::vector<std::string> stops, const std::string& text, bool include = false) {
  StopMatcher matcher(std::move(stops), include);
  return RunMatcher(matcher, text);
}

TEST(StopMatcherTest, PassesEverythingWithoutStrings) {
  EXPECT_EQ(RunOnce({}, "abc"), (Outcome{"abc", -1}));
}

TEST(StopMatcherTest, CutsBeforeOrAfterTheMatch) {
  EXPECT_EQ(RunOnce({"END"}, "the END is"), (Outcome{"the ", 0}));
  EXPECT_EQ(RunOnce({"END"}, "the END is", true), (Outcome{"the END", 0}));
}

TEST(StopMatcherTest, HoldsBackAPossibleStart) {
  StopMatcher matcher({"\n\nUser:"}, false);
  EXPECT_EQ(matcher.Append("hello\n"), "hello");
  EXPECT_EQ(matcher.Append("\nUse"), "");
  EXPECT_EQ(matcher.Append("d"), "\n\nUsed");
  EXPECT_EQ(matcher.Append("\n\nUser"), "");
  EXPECT_FALSE(matcher.matched());
  EXPECT_EQ(matcher.Append(": hi"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.matched_string(), "\n\nUser:");
  EXPECT_EQ(matcher.Append("more"), "");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcherTest, FinishFlushesWhatNeverMatched) {
  StopMatcher matcher({"abc"}, false);
  EXPECT_EQ(matcher.Append("xab"), "x");
  EXPECT_EQ(matcher.Finish(), "ab");
}

TEST(StopMatcherTest, TheFirstToEndWinsThenTheLongestThenTheOrder) {
  EXPECT_EQ(RunOnce({"abcd", "bc"}, "abcd"), (Outcome{"a", 1}));
  EXPECT_EQ(RunOnce({"bc", "abc"}, "xabc"), (Outcome{"x", 1}));
  EXPECT_EQ(RunOnce({"b", "b"}, "ab"), (Outcome{"a", 0}));
}

TEST(StopMatcherTest, BeforeMinTokensAMatchIsText) {
  StopMatcher matcher({"aa"}, false);
  EXPECT_EQ(matcher.Append("xaa", false), "xa");  // its last byte may start the next match
  EXPECT_EQ(matcher.Append("a", true), "");
  EXPECT_TRUE(matcher.matched());
}

TEST(StopMatcherTest, ValidateNamesTheStringAndTheLimit) {
  EXPECT_TRUE(StopMatcher::Validate({}).ok());
  EXPECT_TRUE(StopMatcher::Validate({std::string(256, 'a'), "é"}).ok());
  EXPECT_EQ(StopMatcher::Validate({"a", std::string(257, 'a')}).message(),
            "stop.strings[1] has 257 bytes; at most 256 are allowed: shorten it");
  EXPECT_EQ(StopMatcher::Validate({""}).message(), "stop.strings[0] is empty: leave it out");
  EXPECT_EQ(StopMatcher::Validate({"\xC3"}).message(), "stop.strings[0] is not valid UTF-8");
  EXPECT_EQ(StopMatcher::Validate(std::vector<std::string>(17, "a")).message(),
            "stop.strings has 17 entries; at most 16 are allowed: send fewer");
}

// Every text of up to 9 letters of {a, b}, every set of up to two short strings, every cut in two.
TEST(StopMatcherTest, EverySmallCaseAgreesWithTheDefinition) {
  std::vector<std::string> words;
  for (size_t length = 1; length <= 3; ++length) {
    for (size_t bits = 0; bits < (size_t{1} << length); ++bits) {
      std::string word;
      for (size_t i = 0; i < length; ++i) word += bits >> i & 1 ? 'b' : 'a';
      words.push_back(word);
    }
  }
  for (const std::string& first : words) {
    for (const std::string& second : words) {
      const std::vector<std::string> stops = {first, second};
      for (size_t bits = 0; bits < 512; ++bits) {
        std::string text;
        for (size_t i = 0; i < 9; ++i) text += bits >> i & 1 ? 'b' : 'a';
        const Outcome expected = Model(stops, text, false, 0);
        for (size_t cut = 0; cut < 9; cut += 2) {
          StopMatcher matcher(stops, false);
          Outcome outcome;
          outcome.text = matcher.Append(text.substr(0, cut));
          const Outcome rest = RunMatcher(matcher, text.substr(cut));
          outcome = {outcome.text + rest.text, rest.matched};
          ASSERT_EQ(outcome, expected) << first << " " << second << " in " << text << " " << cut;
        }
      }
    }
  }
}

std::string RandomWord(std::mt19937& random, size_t length, int letters) {
  std::string word;
  while (word.size() < length) word += static_cast<char>('a' + random() % letters);
  return word;
}

TEST(StopMatcherTest, RandomCasesInRandomPiecesAgreeAtEveryStep) {
  std::mt19937 random(TestSeed());
  for (int round = 0; round < 20000; ++round) {
    const int letters = 1 + random() % 3;
    std::vector<std::string> stops;
    for (size_t i = 1 + random() % 16; i > 0; --i) {
      stops.push_back(RandomWord(random, 1 + random() % 12, letters));
    }
    const std::string text = RandomWord(random, random() % 60, letters);
    const bool include = random() % 2;
    const size_t armed_from = random() % 2 ? 0 : std::min<size_t>(random() % 20, text.size());
    const Outcome expected = Model(stops, text, include, armed_from);

    StopMatcher matcher(stops, include);
    std::string shown;
    for (size_t at = 0; at < text.size();) {
      const size_t border = at < armed_from ? armed_from : text.size();
      const size_t count = std::min<size_t>(random() % 6, border - at);
      shown += matcher.Append(text.substr(at, count), at >= armed_from);
      at += count;
      if (!matcher.matched()) {
        ASSERT_EQ(shown.size(), Showable(stops, text.substr(0, at)));
      }
    }
    shown += matcher.Finish();
    const int matched = matcher.matched() ? static_cast<int>(matcher.matched_index()) : -1;
    ASSERT_EQ((Outcome{shown, matched}), expected) << text;
  }
}

}  // namespace
}  // namespace rivulet
