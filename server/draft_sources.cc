// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/draft_sources.h"

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/drafts/lookup_drafter.h"

namespace rivulet {
namespace {

// Its tokens and their tables take at most 8 bytes each.
constexpr size_t kMostTextBytes = size_t{64} << 20;

absl::Status Refuse(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("--lookup-text=\"", path, "\": ", why));
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostTextBytes + 1, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size())) && !file.eof()) {
    return Refuse(path, "the file cannot be read");
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMostTextBytes) return Refuse(path, "give a text of at most 64 MiB");
  return text;
}

absl::StatusOr<std::vector<uint32_t>> TokensOf(const std::string& path,
                                               const Tokenizer* tokenizer) {
  if (path.empty()) return std::vector<uint32_t>();
  if (tokenizer == nullptr) return Refuse(path, "the model has no tokenizer to read it with");
  RIVULET_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  auto tokens = tokenizer->Encode(text);
  if (!tokens.ok()) return Refuse(path, std::string(tokens.status().message()));
  return tokens;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DrafterSource>> MakeDrafterSource(const ServerOptions& options,
                                                                 const Tokenizer* tokenizer,
                                                                 Metrics& metrics) {
  if (options.speculate == Speculation::kOff) {
    if (options.lookup_text.empty()) return nullptr;
    return Refuse(options.lookup_text, "drafts are off: add --speculate=lookup");
  }
  RIVULET_ASSIGN_OR_RETURN(auto tokens, TokensOf(options.lookup_text, tokenizer));
  return std::make_unique<LookupSource>(std::move(tokens), metrics);
}

}  // namespace rivulet
