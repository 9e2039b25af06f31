// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/text/detokenizer.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"

namespace rivulet {
namespace {

// Ids 0..255 are bytes, 256 is BOS, and then the pieces given.
class FakeTokenizer : public Tokenizer {
 public:
  static constexpr uint32_t kBos = 256;

  explicit FakeTokenizer(std::vector<std::string> pieces = {}, bool dummy_prefix = true)
      : dummy_prefix_(dummy_prefix) {
    for (int byte = 0; byte < 256; ++byte) bytes_.push_back(std::string(1, char(byte)));
    bytes_.push_back("");
    for (std::string& piece : pieces) bytes_.push_back(std::move(piece));
  }
  absl::StatusOr<std::vector<uint32_t>> EncodeMarked(std::string_view,
                                                     const PlainRanges&) const override {
    return absl::UnimplementedError("not used here");
  }
  std::string_view TokenBytes(uint32_t id) const override { return bytes_.at(id); }
  std::string_view Piece(uint32_t id) const override { return bytes_.at(id); }
  size_t vocab_size() const override { return bytes_.size(); }
  bool AddsDummyPrefix() const override { return dummy_prefix_; }
  int64_t bos_id() const override { return kBos; }
  int64_t eos_id() const override { return -1; }

 private:
  bool dummy_prefix_;
  std::vector<std::string> bytes_;
};

std::vector<uint32_t> ByteTokens(std::string_view bytes) {
  std::vector<uint32_t> tokens;
  for (char byte : bytes) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

std::string Decode(std::string_view bytes) {
  return Detokenize(FakeTokenizer(), ByteTokens(bytes), false);
}

// A decoder of whole strings that shares nothing with the one under test: at each place the longest
// run that is a prefix of an encoded code point, by trying all of them. Slow on purpose.
std::string Encode(uint32_t c) {
  if (c < 0x80) return {char(c)};
  if (c < 0x800) return {char(0xC0 | c >> 6), char(0x80 | (c & 63))};
  if (c < 0x10000) {
    return {char(0xE0 | c >> 12), char(0x80 | (c >> 6 & 63)), char(0x80 | (c & 63))};
  }
  return {char(0xF0 | c >> 18), char(0x80 | (c >> 12 & 63)), char(0x80 | (c >> 6 & 63)),
          char(0x80 | (c & 63))};
}

const std::vector<std::string>& AllCharacters() {
  static const auto* all = [] {
    auto* list = new std::vector<std::string>;
    for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
      if (c < 0xD800 || c > 0xDFFF) list->push_back(Encode(c));
    }
    std::sort(list->begin(), list->end());
    return list;
  }();
  return *all;
}

bool IsPrefixOfCharacter(const std::string& bytes) {
  const auto found = std::lower_bound(AllCharacters().begin(), AllCharacters().end(), bytes);
  return found != AllCharacters().end() && found->compare(0, bytes.size(), bytes) == 0;
}

bool IsCharacter(const std::string& bytes) {
  return std::binary_search(AllCharacters().begin(), AllCharacters().end(), bytes);
}

std::string ReferenceDecode(const std::string& bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    size_t length = 1;
    while (at + length < bytes.size() && !IsCharacter(bytes.substr(at, length)) &&
           IsPrefixOfCharacter(bytes.substr(at, length + 1))) {
      ++length;
    }
    const std::string run = bytes.substr(at, length);
    text += IsCharacter(run) ? run : "\uFFFD";
    at += length;
  }
  return text;
}

TEST(DetokenizerTest, WellFormedTextPassesUnchanged) {
  for (const std::string text : {"", "a", "é", "€", "𝄞", "a é€𝄞 z", "\x7f", "퟿", "", "\uFFFF"}) {
    EXPECT_EQ(Decode(text), text);
  }
}

TEST(DetokenizerTest, IllFormedBytesBecomeReplacementCharacters) {
  EXPECT_EQ(Decode("\x80"), "\uFFFD");
  EXPECT_EQ(Decode("\xC3"), "\uFFFD");
  EXPECT_EQ(Decode("\xC3x"), "\uFFFDx");
  EXPECT_EQ(Decode("\xC0\xAF"), "\uFFFD\uFFFD");                      // overlong
  EXPECT_EQ(Decode("\xE0\x80\xAF"), "\uFFFD\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(Decode("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // surrogate
  EXPECT_EQ(Decode("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // past U+10FFFF
  EXPECT_EQ(Decode("\xE2\x82z"), "\uFFFDz");  // cut short: one for the subpart
  EXPECT_EQ(Decode("\xE2\x82\xC3\xA9"), "\uFFFDé");
  EXPECT_EQ(Decode("\xF0\x9D\x84"), "\uFFFD");
  EXPECT_EQ(Decode("\xFF"), "\uFFFD");
}

TEST(DetokenizerTest, HoldsACharacterBackUntilItIsWhole) {
  FakeTokenizer tokenizer;
  Detokenizer detokenizer(tokenizer, false);
  EXPECT_EQ(detokenizer.Append(ByteTokens("a\xE2")), "a");
  EXPECT_EQ(detokenizer.Append(ByteTokens("\x82")), "");
  EXPECT_EQ(detokenizer.Append(ByteTokens("\xAC")), "€");
  EXPECT_EQ(detokenizer.Append(ByteTokens("\xE2")), "");
  EXPECT_EQ(detokenizer.Append(ByteTokens("b")), "\uFFFDb");
  EXPECT_EQ(detokenizer.Append(ByteTokens("\xF0\x9D")), "");
  EXPECT_EQ(detokenizer.Finish(), "\uFFFD");
}

TEST(DetokenizerTest, EverySequenceOfThreeInterestingBytes) {
  const std::string interesting =
      "a\x7F\x80\x8F\x90\x9F\xA0\xBF\xC1\xC2\xDF\xE0\xE1\xEC\xED\xEE\xEF\xF0\xF1\xF3\xF4\xF5\xFF";
  for (char a : interesting) {
    for (char b : interesting) {
      for (char c : interesting) {
        const std::string bytes = {a, b, c};
        ASSERT_EQ(Decode(bytes), ReferenceDecode(bytes)) << std::hex << int(a) << int(b) << int(c);
      }
    }
  }
}

TEST(DetokenizerTest, RandomBytesInRandomPiecesDecodeAsAWhole) {
  std::mt19937 random(TestSeed());
  const std::string interesting = "ab \x80\x9F\xA0\xBF\xC3\xE0\xED\xE2\xF0\xF4\xFF";
  FakeTokenizer tokenizer;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    for (size_t i = random() % 12; i > 0; --i) bytes += interesting[random() % interesting.size()];
    if (random() % 2) bytes += Encode(0x10000 + random() % 0x1000);
    Detokenizer detokenizer(tokenizer, false);
    const std::vector<uint32_t> tokens = ByteTokens(bytes);
    std::string text;
    for (size_t at = 0; at < tokens.size();) {
      const size_t count = std::min<size_t>(random() % 4, tokens.size() - at);
      const std::string delta = detokenizer.Append({tokens.data() + at, count});
      ASSERT_EQ(delta, ReferenceDecode(delta)) << "a delta is not whole characters";
      text += delta;
      at += count;
    }
    text += detokenizer.Finish();
    ASSERT_EQ(text, ReferenceDecode(bytes));
  }
}

TEST(DetokenizerTest, LeavesOutTheDummyPrefixOnlyWhereATextStarts) {
  const FakeTokenizer tokenizer({" Once", " upon", "tail"});
  const std::vector<uint32_t> text = {257, 258, 259};
  const std::vector<uint32_t> after_bos = {FakeTokenizer::kBos, 257, 258};
  EXPECT_EQ(Detokenize(tokenizer, text, true), "Once upontail");
  EXPECT_EQ(Detokenize(tokenizer, text, false), " Once upontail");
  EXPECT_EQ(Detokenize(tokenizer, after_bos, true), "Once upon");
  EXPECT_EQ(Detokenize(tokenizer, std::vector<uint32_t>{259, 258}, true), "tail upon");
  EXPECT_EQ(Detokenize(FakeTokenizer({" Once"}, false), std::vector<uint32_t>{257}, true), " Once");
}

TEST(DetokenizerTest, OnlyOneSpaceIsTheDummyPrefixs) {
  EXPECT_EQ(Detokenize(FakeTokenizer(), ByteTokens("  a"), true), " a");
  EXPECT_EQ(Detokenize(FakeTokenizer(), ByteTokens(" "), true), "");
}

TEST(DetokenizerTest, ATextStartsAfterControlTokensAlone) {
  const FakeTokenizer tokenizer({" "});
  EXPECT_TRUE(Detokenizer::StartsText(tokenizer, {}));
  EXPECT_TRUE(Detokenizer::StartsText(tokenizer, std::vector<uint32_t>{FakeTokenizer::kBos}));
  EXPECT_FALSE(Detokenizer::StartsText(tokenizer, std::vector<uint32_t>{FakeTokenizer::kBos, 257}));
}

TEST(DetokenizerTest, IdsPastTheVocabularyAddNothing) {
  EXPECT_EQ(Detokenize(FakeTokenizer(), std::vector<uint32_t>{'a', 9999, 'b'}, false), "ab");
}

}  // namespace
}  // namespace rivulet
