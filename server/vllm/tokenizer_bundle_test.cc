// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/vllm/tokenizer_bundle.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_directory.h"
#include "kernels/base/test_seed.h"
#include "model_loader/tokenizer.h"
#include "sentencepiece/model.pb.h"
#include "server/vllm/sentencepiece_export.h"

namespace rivulet::vllm_engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Key;

void Write(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string ReadFile(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

std::string BundledModel() {
  return std::string(std::getenv("RIVULET_SOURCE_DIR")) + "/models/tales";
}

// The folder of a model that spm_train makes of this file's words.
std::string Train(const std::string& flags) {
  const std::string folder = TestDirectory();
  std::ofstream text(folder + "/text");
  for (int i = 0; i < 40; ++i) {
    text << "The quick brown fox number " << i << " jumps over the lazy dog, für " << i * i << "\n"
         << "aaa aaaa ababab  double  spaces and banana bandanas ﬁnally Ａｂｃ\n";
  }
  text.close();
  const std::string command = "spm_train --input=" + folder + "/text --model_prefix=" + folder +
                              "/tokenizer --hard_vocab_limit=false --minloglevel=2 " + flags +
                              " 2> " + folder + "/log";
  EXPECT_EQ(std::system(command.c_str()), 0) << ReadFile(folder + "/log");
  return folder;
}

std::string RandomText(std::mt19937_64& random) {
  static const char* const kParts[] = {
      "a", "aa", "b", "ab", "ban", "ana", " ",    "  ", "The", "fox", "ü",  "für", "☃",   "日本",
      "ﬁ", "Ａ", "0", "42", ",",   "x̂",   "lazy", "do", "g",   "\t",  "zq", "é",   "🦊"};
  std::string text;
  const size_t parts = 1 + random() % 12;
  for (size_t i = 0; i < parts; ++i) text += kParts[random() % std::size(kParts)];
  return text;
}

std::string Export(const std::string& folder, const std::vector<uint32_t>& begin_ids = {}) {
  const auto json = ExportTokenizerJson(ReadFile(folder + "/tokenizer.model"), begin_ids);
  EXPECT_TRUE(json.ok()) << json.status();
  return json.value_or("");
}

// `tied`: the order of pieces may differ, whose scores are the same in either.
void ExpectTheSameIds(const std::string& folder, bool tied = false) {
  const std::string exported = TestDirectory();
  Write(exported + "/tokenizer.json", Export(folder));
  const auto original = LoadSentencePiece(folder + "/tokenizer.model");
  const auto copy = LoadTokenizerJson(exported);
  ASSERT_TRUE(original.ok()) << original.status();
  ASSERT_TRUE(copy.ok()) << copy.status();
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 3000; ++i) {
    const std::string text = RandomText(random);
    auto ids = *(*copy)->Encode(text), expected = *(*original)->Encode(text);
    if (tied) std::sort(ids.begin(), ids.end());
    if (tied) std::sort(expected.begin(), expected.end());
    ASSERT_EQ(ids, expected) << "'" << text << "'";
  }
}

TEST(SentencePieceExportTest, HasTheIdsOfTheBundledModel) { ExpectTheSameIds(BundledModel()); }
TEST(SentencePieceExportTest, HasTheIdsOfBpeWithADummyPrefix) {
  ExpectTheSameIds(
      Train("--model_type=bpe --vocab_size=400 --byte_fallback "
            "--normalization_rule_name=identity --remove_extra_whitespaces=false"));
}
TEST(SentencePieceExportTest, HasTheIdsOfBpeWithoutBytes) {
  ExpectTheSameIds(Train("--model_type=bpe --vocab_size=150"));
}
TEST(SentencePieceExportTest, HasTheIdsOfUnigramWithNormalization) {
  ExpectTheSameIds(Train("--model_type=unigram --vocab_size=120"), /*tied=*/true);
}
TEST(SentencePieceExportTest, HasTheIdsOfUnigramWithBytesAndSymbols) {
  ExpectTheSameIds(Train("--model_type=unigram --vocab_size=400 --byte_fallback "
                         "--add_dummy_prefix=false --remove_extra_whitespaces=false "
                         "--user_defined_symbols=zq"),
                   /*tied=*/true);
}

TEST(SentencePieceExportTest, ATextBeginsWithBos) {
  const std::string folder = TestDirectory();
  Write(folder + "/tokenizer.json", Export(BundledModel(), {1}));
  const auto tokenizer = LoadTokenizerJson(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->begin_ids(), testing::Optional(ElementsAre(1)));
  EXPECT_THAT(*(*tokenizer)->EncodeRendered("<s></s>"), ElementsAre(1, 2));
}

TEST(SentencePieceExportTest, WhatTheOtherFormatCannotSayIsNamed) {
  namespace spm = ::rivulet::sentencepiece;
  spm::Model model;
  spm::Piece& unknown = *model.add_pieces();
  unknown.set_piece("<unk>");
  unknown.set_type(spm::Piece::UNKNOWN);
  const auto why = [](const spm::Model& changed) {
    const auto json = ExportTokenizerJson(changed.SerializeAsString(), {});
    EXPECT_TRUE(absl::IsUnimplemented(json.status())) << json.status();
    return std::string(json.status().message());
  };
  spm::Model words = model;
  words.mutable_trainer_spec()->set_model_type(spm::TrainerSpec::WORD);
  EXPECT_THAT(why(words), HasSubstr("words"));
  spm::Model suffix = model;
  suffix.mutable_trainer_spec()->set_treat_whitespace_as_suffix(true);
  EXPECT_THAT(why(suffix), HasSubstr("suffixes"));
  spm::Model escaped = model;
  escaped.mutable_normalizer_spec()->set_escape_whitespaces(false);
  EXPECT_THAT(why(escaped), HasSubstr("not escaped"));
  spm::Model symbol = model;
  symbol.add_pieces()->set_type(spm::Piece::USER_DEFINED);
  EXPECT_THAT(why(symbol), HasSubstr("user-defined"));
  EXPECT_TRUE(absl::IsInvalidArgument(ExportTokenizerJson("\xFF", {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ExportTokenizerJson("", {}).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(ExportTokenizerJson(model.SerializeAsString(), {7}).status()));
}

// ---- The archive.

uint32_t Number(const std::string& bytes, size_t at, size_t size) {
  uint32_t value = 0;
  for (size_t i = 0; i < size; ++i)
    value |= uint32_t{static_cast<uint8_t>(bytes.at(at + i))} << 8 * i;
  return value;
}

std::string Inflate(const std::string& packed, size_t size) {
  std::string out(size + 1, '\0');
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, -MAX_WBITS), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

// The files, found by the headers before them.
std::map<std::string, std::string> Unzip(const std::string& zip) {
  std::map<std::string, std::string> files;
  size_t at = 0;
  while (zip.compare(at, 4, "PK\x03\x04") == 0) {
    const uint32_t packed = Number(zip, at + 18, 4), size = Number(zip, at + 22, 4);
    const uint32_t name = Number(zip, at + 26, 2);
    const std::string content = Inflate(zip.substr(at + 30 + name, packed), size);
    EXPECT_EQ(content.size(), size);
    EXPECT_EQ(crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()),
              Number(zip, at + 14, 4));
    files[zip.substr(at + 30, name)] = content;
    at += 30 + name + packed;
  }
  EXPECT_EQ(zip.compare(at, 4, "PK\x01\x02"), 0);
  EXPECT_EQ(Number(zip, zip.size() - 12, 2), files.size());
  EXPECT_EQ(Number(zip, zip.size() - 6, 4), at);
  return files;
}

TEST(TokenizerBundleTest, HasTheFilesOfTheFolder) {
  const std::string folder = TestDirectory();
  Write(folder + "/tokenizer.json", "{\"a\": 1}");
  Write(folder + "/config.json", "{}");
  Write(folder + "/chat_template.jinja", std::string(100000, 'x'));
  Write(folder + "/model.safetensors", "not this");
  TokenizerBundle bundle(folder, {});
  const auto archive = bundle.Get();
  ASSERT_TRUE(archive.ok()) << archive.status();
  const auto files = Unzip((*archive)->zip);
  EXPECT_THAT(files,
              ElementsAre(Key("chat_template.jinja"), Key("config.json"), Key("tokenizer.json")));
  EXPECT_EQ(files.at("tokenizer.json"), "{\"a\": 1}");
  EXPECT_EQ(files.at("chat_template.jinja"), std::string(100000, 'x'));
  EXPECT_LT((*archive)->zip.size(), 2000u);
  EXPECT_EQ((*archive)->sha256.size(), 64u);
  EXPECT_EQ(*bundle.Get(), *archive);
}

TEST(TokenizerBundleTest, ExportsASentencePieceModel) {
  TokenizerBundle bundle(BundledModel(), {1});
  const auto archive = bundle.Get();
  ASSERT_TRUE(archive.ok()) << archive.status();
  const auto files = Unzip((*archive)->zip);
  EXPECT_EQ(files.at("tokenizer.json"), Export(BundledModel(), {1}));
}

TEST(TokenizerBundleTest, TriesAgainAfterAFailure) {
  const std::string folder = TestDirectory();
  TokenizerBundle bundle(folder, {});
  EXPECT_TRUE(absl::IsFailedPrecondition(bundle.Get().status()));
  Write(folder + "/tokenizer.json", "{}");
  EXPECT_TRUE(bundle.Get().ok());
}

}  // namespace
}  // namespace rivulet::vllm_engine
