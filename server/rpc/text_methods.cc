// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/rpc/text_methods.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/rpc/message_conversion.h"
#include "server/rpc/validation.h"
#include "server/text/detokenizer.h"

namespace rivulet {

absl::Status Tokenize(const ServedModel& model, const v1::TokenizeRequest& request,
                      v1::TokenizeResponse& response) {
  RIVULET_ASSIGN_OR_RETURN(const Tokenizer* const tokenizer, RequireTokenizer(model));
  RIVULET_RETURN_IF_ERROR(CheckTextBytes("text", request.text().size()));
  RIVULET_ASSIGN_OR_RETURN(std::vector<uint32_t> ids, tokenizer->Encode(request.text()));
  if (request.add_bos()) {
    if (model.bos_id < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("add_bos: ", model.name, " has no BOS token; leave add_bos out"));
    }
    ids.insert(ids.begin(), static_cast<uint32_t>(model.bos_id));
  }
  for (const uint32_t id : ids) {
    response.add_token_ids(id);
    response.add_pieces(std::string(tokenizer->Piece(id)));
  }
  return absl::OkStatus();
}

absl::Status Detokenize(const ServedModel& model, const v1::DetokenizeRequest& request,
                        v1::DetokenizeResponse& response) {
  RIVULET_ASSIGN_OR_RETURN(const Tokenizer* const tokenizer, RequireTokenizer(model));
  RIVULET_RETURN_IF_ERROR(CheckTokenIds(request.token_ids(), model, "token_ids"));
  const std::vector<uint32_t> ids(request.token_ids().begin(), request.token_ids().end());
  response.set_text(rivulet::Detokenize(*tokenizer, ids, /*starts_text=*/true));
  return absl::OkStatus();
}

absl::Status GetModel(const ServedModel& model, const v1::GetModelRequest&, v1::Model& response) {
  response = ToProto(model);
  return absl::OkStatus();
}

}  // namespace rivulet
