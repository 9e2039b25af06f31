// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/tokenizer.h"

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/strings.h"
#include "model_loader/testing.h"

namespace rivulet {
namespace {

using testing::HasSubstr;

std::unique_ptr<Tokenizer> TrainAndLoad(const std::string& options) {
  const std::string directory = TestDirectory();
  TrainTestTokenizer(directory, options);
  auto tokenizer = LoadSentencePiece(directory + "/tokenizer.model");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

std::string Join(const Tokenizer& tokenizer, const std::vector<uint32_t>& ids) {
  std::string text;
  for (const uint32_t id : ids) text += tokenizer.TokenBytes(id);
  return text;
}

TEST(TokenizerTest, TokenBytesJoinToTheText) {
  const auto tokenizer = TrainAndLoad(
      "--byte_fallback --normalization_rule_name=identity"
      " --remove_extra_whitespaces=false");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_TRUE(tokenizer->AddsDummyPrefix());
  for (const std::string text : {"The quick fox", "  two  spaces ", "für 🐺\n\n\tdich", "a▁b"}) {
    const auto ids = tokenizer->Encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status();
    const std::string expected = text == "a▁b" ? "a b" : text;  // SentencePiece's own ambiguity
    EXPECT_EQ(Join(*tokenizer, *ids), " " + expected);
  }
  EXPECT_TRUE(tokenizer->Encode("")->empty());
}

TEST(TokenizerTest, KnowsAModelWithoutDummyPrefix) {
  const auto tokenizer = TrainAndLoad("--byte_fallback --add_dummy_prefix=false");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_FALSE(tokenizer->AddsDummyPrefix());
  EXPECT_EQ(Join(*tokenizer, *tokenizer->Encode("The quick fox")), "The quick fox");
}

TEST(TokenizerTest, NamesPiecesAndSpecialTokens) {
  const auto tokenizer = TrainAndLoad("--byte_fallback");
  ASSERT_NE(tokenizer, nullptr);
  ASSERT_GE(tokenizer->bos_id(), 0);
  ASSERT_GE(tokenizer->eos_id(), 0);
  EXPECT_EQ(tokenizer->Piece(static_cast<uint32_t>(tokenizer->bos_id())), "<s>");
  EXPECT_EQ(tokenizer->TokenBytes(static_cast<uint32_t>(tokenizer->bos_id())), "");
  EXPECT_EQ(tokenizer->TokenBytes(static_cast<uint32_t>(tokenizer->eos_id())), "");
  std::string bytes;
  for (uint32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    if (tokenizer->Piece(id) == "<0xC3>") bytes = tokenizer->TokenBytes(id);
  }
  EXPECT_EQ(bytes, "\xc3");
}

TEST(TokenizerTest, RecognisesSpecialTokensOnlyInRenderedText) {
  const auto tokenizer = TrainAndLoad("--byte_fallback --control_symbols='<|end|>,<|end|>of'");
  ASSERT_NE(tokenizer, nullptr);
  const auto ids = tokenizer->EncodeRendered("<s>The<|end|>fox<|end|>of");
  ASSERT_TRUE(ids.ok()) << ids.status();
  std::string text;
  for (const uint32_t id : *ids) {
    const bool control = tokenizer->TokenBytes(id).empty();
    text += control ? absl::StrCat("[", ToAbsl(tokenizer->Piece(id)), "]")
                    : std::string(tokenizer->TokenBytes(id));
  }
  EXPECT_EQ(text, "[<s>] The[<|end|>] fox[<|end|>of]");
  EXPECT_EQ(Join(*tokenizer, *tokenizer->Encode("<s>The")), " <s>The");
  EXPECT_FALSE(tokenizer->EncodeRendered("<s>\xff").ok());
  // Where a user wrote "of", it does not make a longer token of the template's.
  const auto marked = tokenizer->EncodeMarked("<s><|end|>of<s>", {{10, 15}});
  ASSERT_TRUE(marked.ok()) << marked.status();
  EXPECT_EQ(tokenizer->Piece((*marked)[1]), "<|end|>");
  EXPECT_EQ(Join(*tokenizer, *marked), " of<s>");
}

TEST(TokenizerTest, RefusesInvalidUtf8) {
  const auto tokenizer = TrainAndLoad("");
  ASSERT_NE(tokenizer, nullptr);
  const absl::Status status = tokenizer->Encode("fox\xff").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("byte 0xff at offset 3"));
}

TEST(TokenizerTest, SaysWhyAFileCannotBeLoaded) {
  EXPECT_EQ(LoadSentencePiece("/no/tokenizer.model").status().code(), absl::StatusCode::kNotFound);
  const std::string path = TestDirectory() + "/tokenizer.model";
  WriteTestFile(path, "this is not a model");
  const absl::Status status = LoadSentencePiece(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
}

// Opening the pipe waited for ever for its writer.
TEST(TokenizerTest, RefusesWhatIsNoRegularFile) {
  const std::string directory = TestDirectory();
  ASSERT_EQ(mkfifo((directory + "/pipe").c_str(), 0600), 0);
  ASSERT_EQ(symlink("nowhere", (directory + "/link").c_str()), 0);
  ASSERT_EQ(symlink("/dev/zero", (directory + "/endless").c_str()), 0);
  for (const char* name : {"/pipe", "/link", "/endless"}) {
    EXPECT_THAT(LoadSentencePiece(directory + name).status().ToString(),
                HasSubstr("not a regular file"));
  }
}

}  // namespace
}  // namespace rivulet
