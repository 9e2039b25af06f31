// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/world_tokenizer.h"

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/strings.h"
#include "kernels/base/test_seed.h"
#include "model_loader/testing.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kEnd = "<|end|>";

// Ids 1 to 256 are the bytes, as in the published list; `more` are lines behind them.
std::string List(const std::string& more) {
  std::string list;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string hex = std::string(ToStd(absl::StrCat(absl::Hex(byte, absl::kZeroPad2))));
    list += std::to_string(byte + 1) + (byte < 128 ? " '\\x" : " b'\\x") + hex + "' 1\n";
  }
  return list + more;
}

constexpr const char* kMore =
    "257 'ab' 2\n"
    "258 'abc' 3\n"
    "259 'bcd' 3\n"
    "260 '\\n\\n' 2\n"
    "261 \"it's\" 4\n"
    "262 '\xc3\xa9' 2\n"
    "263 '\\u200b\\U0001f600' 7\n"
    "264 b'\\xe4\\xb8' 2\n"
    "266 '\\\\\\'' 2\n";

std::unique_ptr<Tokenizer> Make(std::string_view end_of_turn = "") {
  auto made = MakeWorldTokenizer(List(kMore), kEnd, end_of_turn);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

std::vector<uint32_t> Ids(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.Encode(text).value();
}

std::string TextOf(const Tokenizer& tokenizer, const std::vector<uint32_t>& ids) {
  std::string text;
  for (const uint32_t id : ids) text += tokenizer.TokenBytes(id);
  return text;
}

std::string ErrorOf(const std::string& more) {
  const absl::Status status = MakeWorldTokenizer(List(more), kEnd, "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(WorldTokenizerTest, TakesTheLongestTokenAtEachPlace) {
  const auto tokenizer = Make();
  EXPECT_THAT(Ids(*tokenizer, "abcd"), ElementsAre(258, 'd' + 1));  // not a | bcd
  EXPECT_THAT(Ids(*tokenizer, "abab"), ElementsAre(257, 257));
  EXPECT_THAT(Ids(*tokenizer, "bcd"), ElementsAre(259));
  EXPECT_THAT(Ids(*tokenizer, "bc"), ElementsAre('b' + 1, 'c' + 1));
  EXPECT_THAT(Ids(*tokenizer, ""), ElementsAre());
}

TEST(WorldTokenizerTest, ReadsPythonsLiterals) {
  const auto tokenizer = Make();
  EXPECT_THAT(Ids(*tokenizer, "\n\n"), ElementsAre(260));
  EXPECT_THAT(Ids(*tokenizer, "it's"), ElementsAre(261));
  EXPECT_THAT(Ids(*tokenizer, "é"), ElementsAre(262));
  EXPECT_THAT(Ids(*tokenizer, "\u200b\U0001f600"), ElementsAre(263));
  EXPECT_THAT(Ids(*tokenizer, "一"), ElementsAre(264, 0x80 + 1));  // part of a character
  EXPECT_THAT(Ids(*tokenizer, "\\'"), ElementsAre(266));
  EXPECT_THAT(Ids(*tokenizer, std::string_view("\0", 1)), ElementsAre(1));
}

TEST(WorldTokenizerTest, PiecesAreUtf8AndMissingIdsEmpty) {
  const auto tokenizer = Make();
  EXPECT_EQ(tokenizer->vocab_size(), 267u);
  EXPECT_EQ(tokenizer->Piece(264), "b'\\xe4\\xb8'");
  EXPECT_EQ(tokenizer->Piece(262), "é");
  EXPECT_EQ(tokenizer->Piece(0), kEnd);
  EXPECT_EQ(tokenizer->TokenBytes(0), "");
  EXPECT_EQ(tokenizer->TokenBytes(265), "");
}

TEST(WorldTokenizerTest, TheEndOfATextIsATokenOnlyWhereATemplateWroteIt) {
  const auto tokenizer = Make();
  const std::string text = absl::StrCat("ab", kEnd, "ab").c_str();
  EXPECT_THAT(tokenizer->EncodeRendered(text).value(), ElementsAre(257, 0, 257));
  EXPECT_EQ(Ids(*tokenizer, text).size(), 9u);
  EXPECT_EQ(TextOf(*tokenizer, Ids(*tokenizer, text)), text);
}

TEST(WorldTokenizerTest, NothingIsPutBeforeAText) {
  const auto tokenizer = Make();
  ASSERT_TRUE(tokenizer->begin_ids().has_value());
  EXPECT_THAT(*tokenizer->begin_ids(), ElementsAre());
  EXPECT_EQ(tokenizer->eos_id(), 0);
  EXPECT_EQ(Make("\n\n")->eos_id(), 260);
  EXPECT_THAT(Make("\n\n")->end_ids(), ElementsAre(260, 0));
  EXPECT_EQ(Make("no such token")->eos_id(), 0);
}

TEST(WorldTokenizerTest, TextsComeBackFromTheirIds) {
  const auto tokenizer = Make();
  std::mt19937 random(TestSeed());
  const std::vector<std::string> parts = {"a",    "b", "c",  "d",         "\n",
                                          "it's", "é", "一", "\U0001f600"};
  for (int i = 0; i < 1000; ++i) {
    std::string text;
    for (unsigned n = random() % 20; n-- > 0;) text += parts[random() % parts.size()];
    EXPECT_EQ(TextOf(*tokenizer, Ids(*tokenizer, text)), text);
  }
}

TEST(WorldTokenizerTest, RefusesTextThatIsNotUtf8) {
  EXPECT_EQ(Make()->Encode("\xff").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(WorldTokenizerTest, ErrorsNameTheLine) {
  for (const char* line :
       {"257", "257 'ab'", "257 ab 2", "257 'ab 2", "257 'ab' 3", "x 'ab' 2", "257 'a'b' 3",
        "257 '\\q' 1", "257 '\\x6' 1", "257 '\\ud800' 3", "257 '\\U00110000' 4", "257 'ab\\' 3",
        "257 b'\\u0041' 1", "-1 'ab' 2", "99999999999 'ab' 2", "257 ' 1"}) {
    EXPECT_THAT(ErrorOf(line), AllOf(HasSubstr("line 257"), HasSubstr("Python literal"))) << line;
  }
  EXPECT_THAT(ErrorOf("0 'ab' 2"), HasSubstr("end of a text"));
  EXPECT_THAT(ErrorOf("4194304 'ab' 2"), HasSubstr("below 4194304"));
  EXPECT_THAT(ErrorOf("257 '' 0"), HasSubstr("must have bytes"));
  EXPECT_THAT(ErrorOf("257 '" + std::string(1025, 'a') + "' 1025"), HasSubstr("1024"));
  EXPECT_THAT(ErrorOf("257 'a' 1"), HasSubstr("are alike"));
  EXPECT_THAT(ErrorOf("256 'ab' 2"), HasSubstr("two tokens have the id 256"));
  EXPECT_THAT(ErrorOf("257 '\xff' 1"), HasSubstr("UTF-8"));
  const absl::Status missing = MakeWorldTokenizer("1 'a' 1\n", kEnd, "").status();
  EXPECT_THAT(std::string(missing.message()), HasSubstr("byte 0 has no token"));
  EXPECT_FALSE(MakeWorldTokenizer("", kEnd, "").ok());
}

// No list ends the process.
TEST(WorldTokenizerTest, SurvivesDamagedLists) {
  std::mt19937 random(TestSeed());
  const std::string whole = List(kMore);
  for (int i = 0; i < 2000; ++i) {
    std::string list = whole.substr(whole.size() - 200);
    for (unsigned n = 1 + random() % 4; n-- > 0;) {
      const char bytes[] = {'\'', '\\', ' ', 'b', 'x', '0', '\n', '"'};
      list[random() % list.size()] = bytes[random() % sizeof(bytes)];
    }
    const auto made = MakeWorldTokenizer(whole.substr(0, whole.size() - 200) + list, kEnd, "");
    if (!made.ok()) continue;
    EXPECT_EQ(TextOf(**made, Ids(**made, "abcd")), "abcd");
  }
}

TEST(WorldTokenizerTest, LoadsWhatADirectoryHas) {
  const std::string directory = TestDirectory();
  EXPECT_EQ(LoadTokenizer(directory).status().code(), absl::StatusCode::kNotFound);
  WriteTestFile(directory + "/rwkv_vocab_v20230424.txt", List(kMore));
  auto tokenizer = LoadTokenizer(directory);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->Piece(0), "<|rwkv_tokenizer_end_of_text|>");
  WriteTestFile(directory + "/tokenizer_config.json",
                R"({"added_tokens_decoder": {"0": {"content": "<s>"}}, "eos_token": "\n\n"})");
  tokenizer = LoadTokenizer(directory);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->Piece(0), "<s>");
  EXPECT_EQ((*tokenizer)->eos_id(), 260);
  WriteTestFile(directory + "/rwkv_vocab_v20230424.txt", "nonsense");
  EXPECT_THAT(std::string(LoadTokenizer(directory).status().message()),
              AllOf(HasSubstr("rwkv_vocab_v20230424.txt"), HasSubstr("line 1")));
}

}  // namespace
}  // namespace rivulet
