// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Tokenize, Detokenize and GetModel, which need neither scheduler nor engine. Threading: pure
// functions; call the first two on a worker.
#ifndef RIVULET_SERVER_RPC_TEXT_METHODS_H_
#define RIVULET_SERVER_RPC_TEXT_METHODS_H_

#include "absl/status/status.h"
#include "rivulet/v1/inference.pb.h"
#include "server/rpc/served_model.h"

namespace rivulet {

// FAILED_PRECONDITION without a tokenizer.
absl::Status Tokenize(const ServedModel& model, const v1::TokenizeRequest& request,
                      v1::TokenizeResponse& response);
absl::Status Detokenize(const ServedModel& model, const v1::DetokenizeRequest& request,
                        v1::DetokenizeResponse& response);
absl::Status GetModel(const ServedModel& model, const v1::GetModelRequest& request,
                      v1::Model& response);

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_TEXT_METHODS_H_
