// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Proto requests → the scheduler's requests: checks every field, tokenizes text, fills in defaults.
// Errors name field, value, limit and remedy.
//
// A named session is leased after all other checks except the prompt's: the prompt's meaning
// depends on what the session holds, which must not change any more.
//
// The results do not have id, outbox, arrival and deadline, which belong to the call.
// Threading: any thread, but on a worker, because tokenizing is slow.
#ifndef RIVULET_SERVER_SERVICE_VALIDATION_H_
#define RIVULET_SERVER_SERVICE_VALIDATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rivulet/v1/inference.pb.h"
#include "server/scheduler/request.h"
#include "server/service/served_model.h"
#include "server/session/session_table.h"

namespace rivulet {

// Largest message in either direction, before compression.
inline constexpr size_t kMaxMessageBytes = size_t{64} << 20;
inline constexpr uint32_t kMaxCompletions = 64;
inline constexpr size_t kMaxStopIds = 64;
inline constexpr size_t kMaxRequestIdBytes = 128;
inline constexpr size_t kMaxCacheSaltBytes = 256;
inline constexpr uint32_t kDefaultMaxTokens = 256;
// Of a text that is to be tokenized: SentencePiece needs about 80 bytes of memory per byte.
inline constexpr size_t kMaxTextBytes = size_t{4} << 20;

// `tenant`: whose sessions it may name. NOT_FOUND and ABORTED come from SessionTable,
// FAILED_PRECONDITION from ReadConversation (conversation.h). After a failure no lease is held.
absl::StatusOr<std::unique_ptr<Request>> MakeGenerateRequest(const v1::GenerateRequest& proto,
                                                             const ServedModel& model,
                                                             uint32_t max_prompt,
                                                             SessionTable& sessions,
                                                             const std::string& tenant = "");
absl::StatusOr<std::unique_ptr<Request>> MakeScoreRequest(const v1::ScoreRequest& proto,
                                                          const ServedModel& model,
                                                          uint32_t max_prompt,
                                                          SessionTable& sessions,
                                                          const std::string& tenant = "");

absl::Status CheckTokenIds(const google::protobuf::RepeatedField<uint32_t>& ids,
                           const ServedModel& model, const char* field);

// The tokens of GenerateRequest.prompt at the beginning of a context, with what the model has
// before it. Errors as MakeGenerateRequest.
absl::StatusOr<std::vector<uint32_t>> TokenizeFirstPrompt(const std::string& text,
                                                          const ServedModel& model,
                                                          uint32_t max_prompt, bool special_tokens);

// At most kMaxTextBytes.
absl::Status CheckTextBytes(const char* field, size_t bytes);

// FAILED_PRECONDITION if the model has none.
absl::StatusOr<const Tokenizer*> RequireTokenizer(const ServedModel& model);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SERVICE_VALIDATION_H_
