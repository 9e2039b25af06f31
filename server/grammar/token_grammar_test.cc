// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/grammar/token_grammar.h"

#include <algorithm>
#include <random>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/base/thread_seconds.h"
#include "server/grammar/ebnf_parser.h"
#include "server/grammar/grammar_reference.h"
#include "server/grammar/list_tokenizer_fixture.h"
#include "server/grammar/regex_parser.h"

namespace rivulet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Grammar OfExpression(Expression expression) { return {{{"root", std::move(expression)}}, 0}; }

Grammar OfRegex(const std::string& regex) {
  auto expression = ParseRegex(regex);
  EXPECT_TRUE(expression.ok()) << expression.status();
  return OfExpression(*std::move(expression));
}

Grammar OfEbnf(const std::string& text) {
  auto grammar = ParseEbnf(text);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return *std::move(grammar);
}

struct Fixture {
  Fixture(const Grammar& grammar, std::vector<std::string> tokens, bool dummy_prefix = false)
      : tokenizer(std::move(tokens), dummy_prefix),
        table(std::make_shared<TokenBytesTable>(tokenizer)) {
    auto made = TokenGrammar::Make(grammar, table);
    EXPECT_TRUE(made.ok()) << made.status();
    this->grammar = *std::move(made);
  }

  std::vector<std::string> AllowedAfter(const GrammarMatcher& matcher) const {
    const auto allowed = matcher.Allowed({});
    EXPECT_TRUE(allowed.ok()) << allowed.status();
    std::vector<std::string> texts;
    for (uint32_t id = 0; allowed.ok() && id < tokenizer.vocab_size(); ++id) {
      if (allowed->Contains(id)) texts.emplace_back(tokenizer.TokenBytes(id));
    }
    return texts;
  }

  ListTokenizer tokenizer;
  std::shared_ptr<const TokenBytesTable> table;
  std::shared_ptr<TokenGrammar> grammar;
};

TEST(TokenGrammarTest, AllowsWhatCanStillMatch) {
  const Fixture fixture(OfRegex("ab*(c|de)"),
                        {"a", "b", "ab", "bb", "bbd", "c", "cc", "d", "e", ""});
  GrammarMatcher matcher(fixture.grammar, false);
  EXPECT_THAT(fixture.AllowedAfter(matcher), ElementsAre("a", "ab"));
  ASSERT_TRUE(matcher.Accept(2).ok());
  EXPECT_THAT(fixture.AllowedAfter(matcher), ElementsAre("b", "bb", "bbd", "c", "d"));
  EXPECT_FALSE(matcher.Accept(0).ok());
  ASSERT_TRUE(matcher.Accept(4).ok());
  EXPECT_THAT(fixture.AllowedAfter(matcher), ElementsAre("e"));
  EXPECT_FALSE(matcher.is_complete());
  ASSERT_TRUE(matcher.Accept(8).ok());
  EXPECT_TRUE(matcher.is_complete());
}

TEST(TokenGrammarTest, LooksAheadOfWhatWasAccepted) {
  const Fixture fixture(OfRegex("abc?"), {"a", "b", "c"});
  const GrammarMatcher matcher(fixture.grammar, false);
  const uint32_t recent[] = {0, 1};
  const auto allowed = matcher.Allowed(recent);
  ASSERT_TRUE(allowed.ok());
  EXPECT_TRUE(allowed->Contains(2) && !allowed->Contains(0) && allowed->may_end());
  EXPECT_FALSE(allowed->Contains(64));
  const uint32_t wrong[] = {0, 2};
  EXPECT_EQ(matcher.Allowed(wrong).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TokenGrammarTest, TokensMayCutCharacters) {
  const Fixture fixture(OfRegex("[äö]+x"), {"\xC3", "\xA4", "\xB6", "\xA4\xC3", "\xBC", "x"});
  GrammarMatcher matcher(fixture.grammar, false);
  EXPECT_THAT(fixture.AllowedAfter(matcher), ElementsAre("\xC3"));
  ASSERT_TRUE(matcher.Accept(0).ok());
  EXPECT_THAT(fixture.AllowedAfter(matcher), ElementsAre("\xA4", "\xB6", "\xA4\xC3"));
}

TEST(TokenGrammarTest, DropsTheSpaceOfATextsFirstToken) {
  const Fixture fixture(OfRegex("a a"), {" a", "a", " "}, true);
  GrammarMatcher first(fixture.grammar, true), later(fixture.grammar, false);
  EXPECT_THAT(fixture.AllowedAfter(first), ElementsAre(" a", "a"));
  EXPECT_THAT(fixture.AllowedAfter(later), ElementsAre("a"));
  ASSERT_TRUE(first.Accept(0).ok());
  EXPECT_THAT(fixture.AllowedAfter(first), ElementsAre(" a", " "));
}

TEST(TokenGrammarTest, SaysSoWhereNoTokenCanFollow) {
  const Fixture fixture(OfRegex("ab"), {"a", "c"});
  GrammarMatcher matcher(fixture.grammar, false);
  ASSERT_TRUE(matcher.Accept(0).ok());
  EXPECT_EQ(matcher.Allowed({}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(TokenGrammarTest, FollowsRecursion) {
  const Fixture fixture(OfEbnf("root ::= \"(\" root \")\" root | \"\""), {"(", ")", "((", "))"});
  GrammarMatcher matcher(fixture.grammar, false);
  EXPECT_THAT(fixture.AllowedAfter(matcher), ElementsAre("(", "(("));
  ASSERT_TRUE(matcher.Accept(2).ok());
  EXPECT_THAT(fixture.AllowedAfter(matcher), ElementsAre("(", ")", "((", "))"));
  ASSERT_TRUE(matcher.Accept(1).ok());
  EXPECT_THAT(fixture.AllowedAfter(matcher), ElementsAre("(", ")", "(("));
  for (int i = 0; i < 2000 && matcher.Accept(0).ok(); ++i) {
  }
  EXPECT_THAT(fixture.AllowedAfter(matcher), ElementsAre(")", "))"));  // nested too deep
}

// What ends a text lies in rules within rules, too, which must not be too deep by then.
TEST(TokenGrammarTest, DeepTextsCanBeCompleted) {
  const std::vector<std::string> tokens = {"(", ")", "x", "v", "w", "y", "z"};
  for (const char* const root :
       {"root ::= \"(\" root \")\" | \"x\" a", "root ::= \"(\" (root a | \"y\") | \"x\""}) {
    const Fixture fixture(OfEbnf(absl::StrCat(root,
                                              "\na ::= b \"y\"\nb ::= c \"z\"\nc ::= d \"w\"\n"
                                              "d ::= \"v\"")),
                          tokens);
    GrammarMatcher matcher(fixture.grammar, false);
    size_t deep = 0;
    while (matcher.Accept(0).ok()) ++deep;
    EXPECT_GT(deep, 500u);
    for (size_t i = 0; !matcher.is_complete(); ++i) {
      ASSERT_LT(i, 4 * deep + 10);
      const std::vector<std::string> allowed = fixture.AllowedAfter(matcher);
      ASSERT_EQ(allowed.size(), 1u);
      const auto token = std::find(tokens.begin(), tokens.end(), allowed[0]) - tokens.begin();
      ASSERT_TRUE(matcher.Accept(static_cast<uint32_t>(token)).ok());
    }
  }
}

// Calls of rules that take no byte lead to as many stacks as there are texts of calls.
TEST(TokenGrammarTest, EmptyRulesTakeBoundedTime) {
  for (const char* const last : {"\"\"", "\"b\"?", "\"b\"{0,0}"}) {
    std::string rules = "root ::= \"a\" a0 \"c\"\n";
    for (int i = 0; i < 40; ++i) {
      const std::string next = "a" + std::to_string(i + 1);
      absl::StrAppend(&rules, "a", i, " ::= ", next, " ", next, "\n");
    }
    absl::StrAppend(&rules, "a40 ::= ", last);
    const Fixture fixture(OfEbnf(rules), {"a", "b", "c"});
    GrammarMatcher matcher(fixture.grammar, false);
    const double started = ThreadSeconds();
    ASSERT_TRUE(matcher.Accept(0).ok());
    EXPECT_THAT(fixture.AllowedAfter(matcher), testing::Contains("c")) << last;
    EXPECT_LT(ThreadSeconds() - started, 1.0) << last;
    const bool is_empty = last[1] == '"' || last[3] == '{';
    EXPECT_EQ(matcher.Allowed({})->state->narrowed, !is_empty) << last;
  }
}

// More than are looked at for one byte, before any of them leads to a place.
TEST(TokenGrammarTest, ManyCallsLeadToAPlace) {
  std::string rules = "root ::= \"a\" x\nx ::= y";
  for (int i = 0; i < 20000; ++i) rules += "|y";
  const Fixture fixture(OfEbnf(rules + "\ny ::= \"b\""), {"a", "b"});
  GrammarMatcher matcher(fixture.grammar, false);
  ASSERT_TRUE(matcher.Accept(0).ok());
  EXPECT_THAT(fixture.AllowedAfter(matcher), ElementsAre("b"));
}

TEST(TokenGrammarTest, BeginsBehindAMark) {
  const Grammar grammar = BehindMark("</t>", OfRegex("a+"));
  for (const char* text : {"</t>a", "b<</t>\n aa", "</</t></t>"}) {
    const bool matches = std::string_view(text).ends_with("a");
    EXPECT_EQ(GrammarReference(grammar, text).Matches(), matches) << text;
  }
  EXPECT_FALSE(GrammarReference(grammar, "</t>b</t>a").MayContinue());
  EXPECT_FALSE(GrammarReference(grammar, "x</t").Matches());
  const Fixture fixture(grammar, {"a", "</t", ">", "t>a", "b"});
  GrammarMatcher matcher(fixture.grammar, false);
  EXPECT_EQ(fixture.AllowedAfter(matcher).size(), 5u);
  ASSERT_TRUE(matcher.Accept(1).ok() && matcher.Accept(2).ok());
  EXPECT_THAT(fixture.AllowedAfter(matcher), ElementsAre("a"));
}

TEST(TokenGrammarTest, RefusesByName) {
  const std::pair<const char*, const char*> kCases[] = {
      {"root ::= root \"a\" | \"b\"", "left recursion"},
      {"root ::= a root \"x\" | \"y\"\na ::= \"\" | \"b\"", "left recursion"},
      {"root ::= \"a\" root", "no text matches"},
      {"root ::= (((\"ab\"{60000}){60000}){60000}){60000}", "nodes and edges"},
      {"root ::= b", "not defined"},
      {"b ::= \"b\"", "no rule named root"},
      {"root ::= \"a\"\nroot ::= \"b\"", "twice"},
      {"root ::= \"a", "missing"},
      {"root ::= [b-a]", "out of order"},
      {"root ::= (\"a\"", ") is missing"},
      {"root ::= \"a\")", "without a ("},
      {"root ::= \"\\q\"", "unknown escape"},
      {"root ::= \"\\uD800\"", "no character"},
      {"root = \"a\"", "::= is missing"},
  };
  for (const auto& [text, reason] : kCases) {
    auto grammar = ParseEbnf(text);
    absl::Status status = grammar.status();
    if (grammar.ok()) status = Automaton::Make(*grammar).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(status.ToString(), HasSubstr(reason)) << text;
  }
}

// Each of these once took seconds or gigabytes. It is refused, or made, soon.
TEST(TokenGrammarTest, BoundsTheWorkOfHostileGrammars) {
  const auto alternatives = [](const char* name, const char* first, int count) {
    std::string rule = std::string(name) + " ::= \"b\"";
    for (int i = 0; i < count; ++i) rule += " | " + std::string(first) + " \"z\"";
    return rule + "\n";
  };
  const std::string calls =
      "root ::= x\n" + alternatives("x", "y", 4000) + alternatives("y", "w", 1500) + "w ::= \"a\"";
  std::string empty = "root ::=";
  for (int i = 0; i < 4; ++i) empty += " (e{65535})";
  empty += "\ne ::= \"a\"?";
  const double started = ThreadSeconds();
  for (const std::string& text : {calls, empty, "root ::= " + std::string(60000, '.')}) {
    const auto grammar = ParseEbnf(text);
    if (grammar.ok()) (void)Automaton::Make(*grammar);
    if (!grammar.ok()) continue;
    const ListTokenizer tokenizer({"a", "b", "az", "zz"});
    (void)TokenGrammar::Make(*grammar, std::make_shared<TokenBytesTable>(tokenizer));
  }
  for (const char* regex :
       {"(((){65535}){65535}){15}", "((){65535}){16384}", "((){0,65535}){65535}",
        "(a{0,65535}|b){3}(|){65535}", "(x?[a-z ,]{0,100}){8}", "(((a?){0,100}){0,100}){0,100}"}) {
    const auto expression = ParseRegex(regex);
    ASSERT_TRUE(expression.ok()) << regex;
    (void)Automaton::Make(OfExpression(*expression));
  }
  EXPECT_LT(ThreadSeconds() - started, 20);
}

// Rules that call the next one with `x` and with `y` behind it, so that there are as many stacks as
// numbers of so many bits.
std::string ManyStacks(int bits, const std::string& inside) {
  std::string rules = "root ::= \"s\" a0\n";
  for (int i = 0; i < bits; ++i) {
    const std::string next = "a" + std::to_string(i + 1);
    absl::StrAppend(&rules, "a", i, " ::= ", next, " \"x\" | ", next, " \"y\"\n");
  }
  return absl::StrCat(rules, "a", bits, " ::= ", inside);
}

// `count` alternatives, each of a character that prints and what is behind it.
std::string Alternatives(int count, const std::string& behind) {
  std::string all;
  for (int i = 0; i < count; ++i) {
    const auto first = static_cast<char>('0' + i % 40);
    absl::StrAppend(&all, i == 0 ? "\"" : " | \"", std::string(1, first), "\" ", behind);
  }
  return all;
}

// The first of these once took 8 s to find what may come behind its first byte.
TEST(TokenGrammarTest, BoundsTheTimeOfAStep) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (int i = 0; i < 64 * 64 * 8; ++i) {
    tokens.push_back({static_cast<char>('0' + i % 64), static_cast<char>('0' + i / 64 % 64),
                      static_cast<char>('a' + i / 4096)});
  }
  std::string same = "y";
  for (int i = 0; i < 10000; ++i) same += " | y";
  same += "\ny ::= \"b\"";
  const std::string calls =
      Alternatives(40, "b") + "\nb ::= " + Alternatives(60, "c \"k\"") + " | c" + "\nc ::= \"z\"";
  for (const std::string& rules :
       {ManyStacks(12, Alternatives(5000, "\"a\"")), ManyStacks(8, Alternatives(5000, "\"a\"")),
        ManyStacks(12, calls), ManyStacks(12, same), ManyStacks(20, "[0-z]"),
        ManyStacks(20, "[0-z] a0 | \"z\"")}) {
    const Fixture fixture(OfEbnf(rules), tokens);
    GrammarMatcher matcher(fixture.grammar, false);
    ASSERT_TRUE(matcher.Accept('s').ok());
    const double started = ThreadSeconds();
    for (int i = 0; i < 4; ++i) {
      const auto allowed = matcher.Allowed({});
      ASSERT_TRUE(allowed.ok());
      uint32_t token = 0;
      while (!allowed->Contains(token)) ++token;
      ASSERT_TRUE(matcher.Accept(token).ok());
    }
    EXPECT_LT(ThreadSeconds() - started, 2.0) << rules.substr(0, 2000);
  }
}

// Once the work is spent: tokens of one byte may all come, and if there are none, the first that
// may come are looked for after all.
TEST(TokenGrammarTest, SomeTokenMayComeOnceTheWorkIsSpent) {
  const std::string rules =
      ManyStacks(12, absl::StrCat(Alternatives(5000, "\"!\""), " | \"éa\" | \"êa\""));
  std::vector<std::string> long_ones = {"s"};
  for (int first = 1; first < 128; ++first) {
    if (first != 's') long_ones.push_back({static_cast<char>(first), '~'});
  }
  std::vector<std::string> short_ones = long_ones;
  long_ones.emplace_back("éa");
  for (const char* const part : {"\xC3", "é", "\xA9", "\xAA"}) short_ones.emplace_back(part);
  for (const auto& [tokens, allowed] :
       {std::pair(long_ones, "éa"), std::pair(short_ones, "\xC3")}) {
    const Fixture fixture(OfEbnf(rules), tokens);
    GrammarMatcher matcher(fixture.grammar, false);
    ASSERT_TRUE(matcher.Accept(0).ok());
    EXPECT_THAT(fixture.AllowedAfter(matcher), ElementsAre(allowed));
  }
}

// Which tokens are left out does not depend on the states that other texts have led to.
TEST(TokenGrammarTest, WhatIsLeftOutDependsOnTheTextAlone) {
  std::string pairs;
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&pairs, i == 0 ? "\"" : " | \"", std::string(1, static_cast<char>('0' + i)),
                    "\" (", Alternatives(40, "[a-h]"), ")");
  }
  const std::string rules = ManyStacks(12, pairs);
  const std::string grammar =
      absl::StrCat("root ::= first | \"t\" (a0 | \"~\")\nfirst ::= \"s\" a0\n",
                   rules.substr(rules.find('\n') + 1));
  std::vector<std::string> tokens = {"s", "t"};
  for (int i = 0; i < 40 * 40 * 8; ++i) {
    tokens.push_back({static_cast<char>('0' + i % 40), static_cast<char>('0' + i / 40 % 40),
                      static_cast<char>('a' + i / 1600)});
  }
  const Fixture fresh(OfEbnf(grammar), tokens), used(OfEbnf(grammar), tokens);
  GrammarMatcher other(used.grammar, false);
  ASSERT_TRUE(other.Accept(1).ok());
  ASSERT_TRUE(other.Allowed({}).ok());
  std::vector<std::string> allowed[2];
  for (const Fixture* fixture : {&fresh, &used}) {
    GrammarMatcher matcher(fixture->grammar, false);
    ASSERT_TRUE(matcher.Accept(0).ok());
    allowed[fixture == &used ? 1 : 0] = fixture->AllowedAfter(matcher);
  }
  EXPECT_EQ(allowed[0], allowed[1]);
  EXPECT_LT(allowed[0].size(), tokens.size() - 2) << "something is left out";
}

// A state of `.*a.{20}` is any subset of 20 places, so that states are many.
TEST(TokenGrammarTest, BoundsItsMemory) {
  const Fixture fixture(OfRegex("[ab]*a[ab]{18}"), {"a", "b", "ab", "ba"});
  GrammarMatcher matcher(fixture.grammar, false);
  std::mt19937 random(TestSeed());
  for (int i = 0; i < 200000; ++i) ASSERT_TRUE(matcher.Accept(random() % 4).ok());
  ASSERT_TRUE(matcher.Allowed({}).ok());
}

// Random grammars over two letters. Rules call later ones or, behind a letter, any.
class RandomGrammar {
 public:
  explicit RandomGrammar(std::mt19937& random) : random_(random) {}

  Grammar Make() {
    const size_t rules = 1 + random_() % 4;
    Grammar grammar;
    for (size_t i = 0; i < rules; ++i) grammar.rules.push_back({"r" + std::to_string(i), {}});
    for (size_t i = rules; i-- > 0;) {
      grammar.rules[i].expression = Choice({Piece(3, i, rules), Letter()});
    }
    return grammar;
  }

 private:
  Expression Letter() {
    Expression letter{.kind = Expression::Kind::kBytes};
    letter.bytes.set('a' + random_() % 2);
    return letter;
  }

  Expression Piece(int depth, size_t rule, size_t rules) {
    const uint32_t least = random_() % 3;
    switch (depth == 0 ? 0 : random_() % 6) {
      case 1:
        return Sequence({Piece(depth - 1, rule, rules), Piece(depth - 1, rule, rules)});
      case 2:
        return Choice({Piece(depth - 1, rule, rules), Piece(depth - 1, rule, rules)});
      case 3:
        return Repeat(Piece(depth - 1, rule, rules), least,
                      random_() % 2 ? least + random_() % 3 : Expression::kUnbounded);
      case 4:
        return rule + 1 < rules ? RuleCall(rule + 1 + random_() % (rules - rule - 1)) : EmptyText();
      case 5:
        return Sequence({Letter(), RuleCall(random_() % rules), Piece(depth - 1, rule, rules)});
      default:
        return Letter();
    }
  }

  std::mt19937& random_;
};

// Whether a token may come, by the reference, at each place of a random text. False: the grammar
// was too ambiguous to say.
bool ExpectAsReference(const Grammar& grammar, const std::vector<std::string>& tokens, int steps,
                       std::mt19937& random) {
  const Fixture fixture(grammar, tokens);
  GrammarMatcher matcher(fixture.grammar, false);
  std::string text;
  for (int step = 0; step < steps && !testing::Test::HasFailure(); ++step) {
    const auto allowed = matcher.Allowed({});
    EXPECT_TRUE(allowed.ok()) << allowed.status();
    if (!allowed.ok() || allowed->state->narrowed) return !allowed.ok();
    EXPECT_EQ(allowed->may_end(), GrammarReference(grammar, text).Matches()) << text;
    std::vector<uint32_t> good;
    for (uint32_t id = 0; id < tokens.size(); ++id) {
      const bool expected =
          !tokens[id].empty() && GrammarReference(grammar, text + tokens[id]).MayContinue();
      EXPECT_EQ(allowed->Contains(id), expected) << tokens[id] << " after " << text;
      if (expected) good.push_back(id);
    }
    EXPECT_EQ(matcher.is_complete(), good.empty() && allowed->may_end());
    if (good.empty()) return true;
    const uint32_t token = good[random() % good.size()];
    EXPECT_TRUE(matcher.Accept(token).ok());
    text += tokens[token];
  }
  return true;
}

TEST(TokenGrammarTest, EqualsTheReferenceOnRandomGrammars) {
  std::mt19937 random(TestSeed());
  const std::vector<std::string> tokens = {"a", "b", "ab", "ba", "aab", "bbb", "abab", "c", ""};
  int narrowed = 0;
  for (int round = 0; round < 300 && !HasFailure(); ++round) {
    const Grammar grammar = RandomGrammar(random).Make();
    narrowed += ExpectAsReference(grammar, tokens, 8, random) ? 0 : 1;
  }
  EXPECT_LT(narrowed, 15);
}

// Letters, spaces and signs, whole and broken characters of several bytes, and long tokens: most
// are of the set of a text's characters, the others are where a mistake would be.
std::vector<std::string> TokensOfText(std::mt19937& random) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  const std::vector<std::string> pieces = {
      "a",  "e",  "z",  " ",    "1",    "é",        "日",          "\xF0\x9F\x98\x80",
      "\"", "\\", "\n", "\xC3", "\xA9", "\xE6\x97", "\xED\xA0\x80"};
  for (size_t length = 15; length < 21; ++length) tokens.push_back(std::string(length, 'a'));
  for (int i = 0; i < 150; ++i) {
    std::string token;
    for (size_t length = 2 + random() % 18; length > 0; --length) {
      token += pieces[random() % (random() % 8 == 0 ? pieces.size() : 8)];
    }
    tokens.push_back(token);
  }
  return tokens;
}

TEST(TokenGrammarTest, EqualsTheReferenceInTexts) {
  std::mt19937 random(TestSeed());
  for (const char* regex : {"\"([^\"\\\\]|\\\\n)*\"", "[ -~]*1", "[a-z ]{0,18}x", "[^\"]{17,40}",
                            "[^1]{3}[^a]*", "([a-z ]|日)*", "[^é]*", "([^é]|éx)*"}) {
    for (int round = 0; round < 3; ++round) {
      EXPECT_TRUE(ExpectAsReference(OfRegex(regex), TokensOfText(random), 6, random)) << regex;
    }
  }
}

TEST(TokenGrammarTest, ServesThreadsAtOnce) {
  const Fixture fixture(OfRegex("([ab]{3}c){50}"), {"a", "b", "c", "ab", "bc", "ca"});
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(i);
      for (int round = 0; round < 20; ++round) {
        GrammarMatcher matcher(fixture.grammar, false);
        while (!matcher.is_complete()) {
          const auto allowed = matcher.Allowed({});
          ASSERT_TRUE(allowed.ok());
          const uint32_t token = random() % 6;
          ASSERT_EQ(matcher.Accept(token).ok(), allowed->Contains(token));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace rivulet
