// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/subword_model.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status.h"
#include "model_loader/config_reader.h"
#include "nlohmann/json.hpp"

namespace rivulet {

absl::Status ReadVocabulary(const nlohmann::json& model, Vocabulary* vocabulary) {
  const auto vocab = model.find("vocab");
  if (vocab == model.end() || !vocab->is_object()) {
    return absl::InvalidArgumentError("the model has no object \"vocab\"");
  }
  for (const auto& [token, id] : vocab->items()) {
    if (!id.is_number_unsigned()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the id of the token \"", token, "\" is ", id.dump(), ", no whole number"));
    }
    RIVULET_RETURN_IF_ERROR(vocabulary->Add(token, id.get<uint64_t>()));
  }
  return absl::OkStatus();
}

std::vector<uint32_t> ByteTokens(const Vocabulary& vocabulary) {
  std::vector<uint32_t> ids;
  for (int byte = 0; byte < 256; ++byte) {
    ids.push_back(vocabulary.Find(absl::StrFormat("<0x%02X>", byte)).value_or(kNoToken));
  }
  return ids;
}

absl::StatusOr<std::unique_ptr<const SubwordModel>> ParseSubwordModel(const nlohmann::json& json) {
  ConfigReader reader(json);
  // Files before the type was written are of BPE if they have merges.
  const std::string type = reader.String("type", reader.Has("merges") ? "BPE" : "");
  RIVULET_RETURN_IF_ERROR(reader.status());
  if (type == "BPE") return ParseBpe(json);
  if (type == "Unigram") return ParseUnigram(json);
  if (type == "WordPiece") return ParseWordPiece(json);
  if (type == "WordLevel") return ParseWordLevel(json);
  return absl::UnimplementedError(absl::StrCat("the model \"", type, "\" is not supported"));
}

}  // namespace rivulet
