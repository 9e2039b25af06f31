// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/draft_sources.h"

#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "model_loader/loaded_model.h"
#include "model_loader/model_folder.h"
#include "server/drafts/lookup_drafter.h"
#include "server/drafts/model_drafter.h"
#include "server/drafts/mtp_drafter.h"
#include "server/engine/cpu_engine.h"
#include "server/engine/state_pool.h"
#include "server/log/log.h"

namespace rivulet {
namespace {

// Its tokens and their tables take at most 8 bytes each.
constexpr size_t kMostTextBytes = size_t{64} << 20;
constexpr const char* kNothingToLookUp = "there is nothing to look up in an empty file";

// A draft model's part of --state-memory, and what it gets with auto.
constexpr uint64_t kDraftPart = 8;
constexpr uint64_t kDraftMemory = uint64_t{128} << 20;

absl::Status Refuse(const char* flag, const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(flag, "=\"", path, "\": ", why));
}
absl::Status Refuse(const std::string& path, const std::string& why) {
  return Refuse("--lookup-text", path, why);
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
  if (tokens->empty()) return Refuse(path, kNothingToLookUp);
  return tokens;
}

absl::StatusOr<std::unique_ptr<DrafterSource>> LookUp(const ServerOptions& options,
                                                      const Tokenizer* tokenizer,
                                                      Metrics& metrics) {
  RIVULET_ASSIGN_OR_RETURN(auto tokens, TokensOf(options.lookup_text, tokenizer));
  return std::make_unique<LookupSource>(std::move(tokens), metrics);
}

// The engine's message takes what it got for all of --state-memory, and asks for too little more.
absl::Status OfItsShare(const absl::Status& status, const EngineOptions& sizes) {
  const std::optional<uint64_t> least = LeastStateMemory(status);
  if (!least.has_value()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat("its states get ", sizes.state_memory, " bytes, an eighth of --state-memory (",
                   kDraftMemory >> 20, "MiB with auto), and one stream with --state-context ",
                   sizes.state_context, " tokens needs ", *least,
                   ": start the server with --state-memory=", kDraftPart * *least,
                   " or more, with a smaller --state-context, or without --draft-model"));
}

absl::StatusOr<std::unique_ptr<DrafterSource>> OpenDraftModel(const ServerOptions& options,
                                                              const Tokenizer* tokenizer,
                                                              uint32_t vocab, Metrics& metrics) {
  LoadOptions load;
  load.threads = options.threads;
  load.mixer.drafts = true;
  load.packed_cache = options.packed_cache;
  RIVULET_ASSIGN_OR_RETURN(const std::shared_ptr<const LoadedModel> model,
                           LoadModel(options.draft_model, load));
  EngineOptions sizes = {.threads = options.threads, .state_context = options.state_context};
  sizes.state_memory = options.state_memory == 0 ? kDraftMemory : options.state_memory / kDraftPart;
  auto made = MakeCpuEngine(model, sizes);
  if (!made.ok()) return OfItsShare(made.status(), sizes);
  std::unique_ptr<Engine> engine = *std::move(made);
  RIVULET_RETURN_IF_ERROR(
      CheckSameVocabulary(tokenizer, vocab, model->tokenizer.get(), engine->vocab_size()));
  LogInfo("draft_model",
          {{"model", options.draft_model}, {"state_slots", engine->capacity().tail_slots}});
  return ModelSource::Make(std::move(engine), options.state_context, metrics);
}

absl::Status RefuseDraftModel(const ServerOptions& options, const absl::Status& status) {
  return Refuse("--draft-model", options.draft_model, std::string(status.message()));
}

}  // namespace

absl::Status CheckDraftFiles(const ServerOptions& options) {
  if (!options.lookup_text.empty()) {
    RIVULET_ASSIGN_OR_RETURN(const std::string text, ReadText(options.lookup_text));
    if (text.empty()) return Refuse(options.lookup_text, kNothingToLookUp);
  }
  if (options.draft_model.empty()) return absl::OkStatus();
  const auto folder = FindModelFolder(options.draft_model);
  return folder.ok() ? absl::OkStatus() : RefuseDraftModel(options, folder.status());
}

absl::StatusOr<std::unique_ptr<DrafterSource>> MakeDrafterSource(const ServerOptions& options,
                                                                 const Tokenizer* tokenizer,
                                                                 Engine& engine, Metrics& metrics) {
  if (options.speculate == Speculation::kOff) return nullptr;
  if (options.speculate == Speculation::kLookup) return LookUp(options, tokenizer, metrics);
  if (options.speculate == Speculation::kMtp) return MtpSource::Make(engine);
  auto source = OpenDraftModel(options, tokenizer, engine.vocab_size(), metrics);
  if (source.ok()) return source;
  return RefuseDraftModel(options, source.status());
}

}  // namespace rivulet
