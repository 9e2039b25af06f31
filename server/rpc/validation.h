// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Proto requests → the scheduler's requests: every field against its limit, text to token ids, and
// every default filled in. Errors name field, value, limit and remedy.
//
// A named session is leased once all else but the prompt is known to be right: what the prompt
// means depends on what the session holds, and nobody may change that any more.
//
// The results lack what belongs to the call: id, outbox, arrival and deadline.
// Threading: any; call them on a worker, since tokenizing takes long.
#ifndef RIVULET_SERVER_RPC_VALIDATION_H_
#define RIVULET_SERVER_RPC_VALIDATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rivulet/v1/inference.pb.h"
#include "server/rpc/served_model.h"
#include "server/scheduler/request.h"
#include "server/session/session_table.h"

namespace rivulet {

inline constexpr uint32_t kMaxCompletions = 64;
inline constexpr size_t kMaxStopIds = 64;
inline constexpr size_t kMaxRequestIdBytes = 128;
inline constexpr uint32_t kDefaultMaxTokens = 256;
// Of a text that is to be tokenized: SentencePiece takes about 80 bytes of memory for each of them.
inline constexpr size_t kMaxTextBytes = size_t{4} << 20;

// NOT_FOUND and ABORTED are the session's (SessionTable); UNIMPLEMENTED is for what later versions
// do (messages with a chat template). On failure no lease is left.
absl::StatusOr<std::unique_ptr<Request>> MakeGenerateRequest(const v1::GenerateRequest& proto,
                                                             const ServedModel& model,
                                                             uint32_t max_prompt,
                                                             SessionTable& sessions);
absl::StatusOr<std::unique_ptr<Request>> MakeScoreRequest(const v1::ScoreRequest& proto,
                                                          const ServedModel& model,
                                                          uint32_t max_prompt,
                                                          SessionTable& sessions);

absl::Status CheckTokenIds(const google::protobuf::RepeatedField<uint32_t>& ids,
                           const ServedModel& model, const char* field);

// At most kMaxTextBytes.
absl::Status CheckTextBytes(const char* field, size_t bytes);

// FAILED_PRECONDITION if the model has none.
absl::StatusOr<const Tokenizer*> RequireTokenizer(const ServedModel& model);

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_VALIDATION_H_
