// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Responses that are kept: each is attached to a session of its own, whose id is the response's.
// A response that continues another runs on a fork of that one's session, so any number of them can
// continue the same one at the same time, and none changes it. A response lives and dies with its
// session: with its time to live, its eviction, its owner.
//
// Threading: any thread; FindResponse's result is immutable.
#ifndef RIVULET_SERVER_OPENAI_STORED_RESPONSE_H_
#define RIVULET_SERVER_OPENAI_STORED_RESPONSE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/openai/input_items.h"
#include "server/service/generation_call.h"
#include "server/session/session_table.h"

namespace rivulet::openai {

struct StoredResponse final : public SessionNotes {
  size_t bytes() const override {
    return sizeof(StoredResponse) + json.size() + (input == nullptr ? 0 : input->bytes);
  }

  std::string json;                         // the response object
  std::shared_ptr<const InputItems> input;  // of its request
  uint64_t tokens = 0;                      // that its session held at its end; 0: it runs
  std::weak_ptr<GenerationCall> call;       // while it runs
};

// "resp_" and 32 hexadecimal digits.
std::string MakeResponseId();

// NOT_FOUND says what became of it.
absl::StatusOr<std::shared_ptr<const StoredResponse>> FindResponse(const SessionTable& sessions,
                                                                   const SessionKey& key);

// A session of the same tenant with the id `new_id` that continues from the response. NOT_FOUND as
// FindResponse, for the field previous_response_id, and if its session was used otherwise, since it
// may then hold another context; ABORTED while the response runs.
absl::StatusOr<SessionInfo> ForkResponse(SessionTable& sessions, const SessionKey& key,
                                         const std::string& new_id);

// NOT_FOUND as FindResponse; ABORTED while it runs.
absl::Status DeleteResponse(SessionTable& sessions, const SessionKey& key);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_STORED_RESPONSE_H_
