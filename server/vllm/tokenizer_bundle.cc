// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/vllm/tokenizer_bundle.h"

#include <openssl/evp.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "model_loader/mapped_file.h"
#include "server/vllm/sentencepiece_export.h"
#include "server/vllm/zip_archive.h"

namespace rivulet::vllm_engine {
namespace {

constexpr const char* kTokenizerJson = "tokenizer.json";
constexpr const char* kSentencePiece = "tokenizer.model";
// Beside the tokenizer, where the folder has them.
constexpr const char* kOthers[] = {"tokenizer_config.json",  "config.json",
                                   "generation_config.json", "special_tokens_map.json",
                                   "chat_template.json",     "chat_template.jinja"};

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::string_view TextOf(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

absl::Status AddFile(const std::string& folder, const char* name, ZipArchive& zip) {
  RIVULET_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(absl::StrCat(folder, "/", name)));
  return zip.Add(name, TextOf(*file));
}

absl::Status AddTokenizer(const std::string& folder, const std::vector<uint32_t>& begin_ids,
                          ZipArchive& zip) {
  if (Exists(absl::StrCat(folder, "/", kTokenizerJson))) {
    return AddFile(folder, kTokenizerJson, zip);
  }
  const std::string path = absl::StrCat(folder, "/", kSentencePiece);
  if (!Exists(path)) {
    return absl::FailedPreconditionError(
        "the model's folder has neither tokenizer.json nor tokenizer.model");
  }
  RIVULET_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  RIVULET_ASSIGN_OR_RETURN(const std::string json, ExportTokenizerJson(TextOf(*file), begin_ids));
  return zip.Add(kTokenizerJson, json);
}

std::string Sha256Hex(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
  return absl::BytesToHexString(std::string(digest.begin(), digest.begin() + size));
}

absl::StatusOr<std::shared_ptr<const TokenizerArchive>> Make(
    const std::string& folder, const std::vector<uint32_t>& begin_ids) {
  ZipArchive zip;
  RIVULET_RETURN_IF_ERROR(AddTokenizer(folder, begin_ids, zip));
  for (const char* const name : kOthers) {
    if (!Exists(absl::StrCat(folder, "/", name))) continue;
    RIVULET_RETURN_IF_ERROR(AddFile(folder, name, zip));
  }
  auto archive = std::make_shared<TokenizerArchive>();
  archive->zip = zip.Finish();
  archive->sha256 = Sha256Hex(archive->zip);
  return archive;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TokenizerArchive>> TokenizerBundle::Get() {
  MutexLock lock(&mutex_);
  if (archive_ != nullptr) return archive_;
  RIVULET_ASSIGN_OR_RETURN(archive_, Make(folder_, begin_ids_));
  return archive_;
}

}  // namespace rivulet::vllm_engine
