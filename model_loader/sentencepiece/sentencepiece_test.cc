// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/sentencepiece/sentencepiece.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_directory.h"
#include "kernels/base/test_seed.h"

namespace rivulet {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The bytes of a toy model with byte fallback, trained once for the whole program.
const std::string& ToyModel() {
  static const std::string* const bytes = [] {
    const std::string prefix = TestDirectory() + "/toy";
    std::ofstream text(prefix + ".txt");
    for (int i = 0; i < 200; ++i)
      text << "The quick brown fox jumps over the lazy dog " << i << "\n";
    text.close();
    const std::string command = "spm_train --input='" + prefix + ".txt' --model_prefix='" + prefix +
                                "' --vocab_size=350 --hard_vocab_limit=false --byte_fallback"
                                " --character_coverage=1.0 --minloglevel=2";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return new std::string(ReadFile(prefix + ".model"));
  }();
  return *bytes;
}

std::unique_ptr<SentencePiece> LoadToy() {
  std::string error;
  auto model = SentencePiece::LoadBytes(ToyModel(), &error);
  EXPECT_NE(model, nullptr) << error;
  return model;
}

TEST(SentencePieceTest, DecodesWhatItEncoded) {
  const auto model = LoadToy();
  std::string text;
  std::string error;
  std::vector<int> ids;
  // "ü" is not in the training text: it travels as bytes.
  ASSERT_TRUE(model->Encode("The lazy fox für dich", &ids, &error)) << error;
  ASSERT_TRUE(model->Decode(ids, &text, &error)) << error;
  EXPECT_EQ(text, "The lazy fox für dich");
}

TEST(SentencePieceTest, NamesItsPieces) {
  const auto model = LoadToy();
  EXPECT_EQ(model->IdToPiece(model->begin_id()), "<s>");
  EXPECT_EQ(model->IdToPiece(model->end_id()), "</s>");
  EXPECT_EQ(model->padding_id(), -1);
  EXPECT_TRUE(model->IsControl(model->begin_id()));
  EXPECT_TRUE(model->IsUnknown(model->unknown_id()));
  const int byte = model->PieceToId("<0xC3>");
  EXPECT_TRUE(model->IsByte(byte));
  EXPECT_FALSE(model->IsUnused(byte));
  EXPECT_EQ(model->IdToPiece(byte), "<0xC3>");
  EXPECT_EQ(model->PieceToId("no such piece"), model->unknown_id());
}

TEST(SentencePieceTest, SurvivesIdsOutsideOfTheVocabulary) {
  const auto model = LoadToy();
  for (const int id : {-1, model->vocabulary_size(), 1 << 30}) {
    EXPECT_EQ(model->IdToPiece(id), "");
    EXPECT_FALSE(model->IsByte(id) || model->IsControl(id) || model->IsUnknown(id) ||
                 model->IsUnused(id));
    std::string text = "left over";
    std::string error;
    EXPECT_FALSE(model->Decode({0, id}, &text, &error));
    EXPECT_EQ(text, "");
    EXPECT_THAT(error, testing::HasSubstr(std::to_string(id)));
  }
}

TEST(SentencePieceTest, EncodesEmptyAndInvalidText) {
  const auto model = LoadToy();
  std::string error;
  std::vector<int> ids = {1, 2, 3};
  ASSERT_TRUE(model->Encode("", &ids, &error)) << error;
  EXPECT_TRUE(ids.empty());
  ASSERT_TRUE(model->Encode("fox \xff\xc3", &ids, &error)) << error;
  std::string text;
  ASSERT_TRUE(model->Decode(ids, &text, &error)) << error;
  EXPECT_EQ(text, "fox \uFFFD\uFFFD");
}

TEST(SentencePieceTest, SaysWhyAFileCannotBeLoaded) {
  std::string error;
  EXPECT_EQ(SentencePiece::LoadFile("/no/such/tokenizer.model", &error), nullptr);
  EXPECT_THAT(error, testing::HasSubstr("/no/such/tokenizer.model"));
  EXPECT_EQ(SentencePiece::LoadFile("/", &error), nullptr);
  EXPECT_EQ(SentencePiece::LoadBytes("", &error), nullptr);
  EXPECT_EQ(SentencePiece::LoadBytes("not a model", &error), nullptr);
  EXPECT_THAT(error, testing::HasSubstr("not a SentencePiece model"));
}

TEST(SentencePieceTest, RefusesANormalizationTableThatLeadsOutside) {
  const std::string trie_size("\x00\xB4\x02\x00", 4);  // of the default rules, nmt_nfkc
  const size_t table = ToyModel().find(trie_size);
  ASSERT_NE(table, std::string::npos);
  // The root's children are far away. The leaf's bit, which the library ignores in the root, must
  // not hide it.
  for (const std::string_view root : {"\x01\xFC\xFF\x7F", "\x01\xFC\xFF\xFF"}) {
    std::string damaged = ToyModel();
    damaged.replace(table + trie_size.size(), root.size(), root);
    std::string error;
    EXPECT_EQ(SentencePiece::LoadBytes(damaged, &error), nullptr);
    EXPECT_THAT(error, testing::HasSubstr("normalisation table"));
  }
}

TEST(SentencePieceTest, EncodesInManyThreadsAtOnce) {
  const auto model = LoadToy();
  std::vector<std::vector<int>> ids(4);
  std::vector<std::thread> threads;
  for (auto& result : ids) {
    threads.emplace_back([&] {
      std::string error;
      for (int i = 0; i < 200; ++i) model->Encode("The quick brown fox", &result, &error);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(ids, testing::Each(testing::ElementsAreArray(ids[0])));
  EXPECT_FALSE(ids[0].empty());
}

// A model that is truncated, or has one bit flipped, or both.
std::string DamagedModel(std::mt19937& random) {
  std::string bytes = ToyModel();
  const bool truncated = random() % 2 == 0;
  if (truncated) bytes.resize(random() % bytes.size());
  if (!bytes.empty()) bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
  return bytes;
}

// Encodes with a model that may be damaged: ids of its vocabulary, or a reason.
void EncodeOrSayWhyNot(const SentencePiece& model) {
  std::vector<int> ids;
  std::string error;
  if (!model.Encode("The quick brown fox für", &ids, &error)) {
    EXPECT_NE(error, "");
    return;
  }
  EXPECT_THAT(ids,
              testing::Each(testing::AllOf(testing::Ge(0), testing::Lt(model.vocabulary_size()))));
}

TEST(SentencePieceTest, RefusesOrUsesDamagedModels) {
  std::mt19937 random(TestSeed());
  int refused = 0;
  constexpr int kModels = 500;
  for (int i = 0; i < kModels; ++i) {
    std::string error;
    const auto model = SentencePiece::LoadBytes(DamagedModel(random), &error);
    EXPECT_EQ(model == nullptr, !error.empty()) << error;
    refused += model == nullptr;
    if (model != nullptr) EncodeOrSayWhyNot(*model);
  }
  EXPECT_GT(refused, kModels / 4);  // most of the truncated ones
  EXPECT_LT(refused, kModels);      // a flipped bit in a piece's text still loads
}

}  // namespace
}  // namespace rivulet
