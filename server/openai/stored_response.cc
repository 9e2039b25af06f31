// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/stored_response.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/openai/errors.h"

namespace rivulet::openai {
namespace {

absl::Status Missing(const std::string& message) {
  absl::Status status = absl::NotFoundError(absl::StrCat(message, "; send the whole conversation"));
  status.SetPayload(kCodePayload, absl::Cord("response_not_found"));
  return status;
}

// The table speaks of sessions, which clients of this API do not see.
absl::Status NoResponse(const SessionTable& sessions, const SessionKey& key) {
  return Missing(absl::StrCat("the response \"", key.id.substr(0, SessionTable::kMaxIdBytes),
                              "\" is not kept: ", sessions.WhyGone(key)));
}

absl::Status InUse(const SessionKey& key) {
  return absl::AbortedError(absl::StrCat("the response \"", key.id,
                                         "\" is in use; try again when what uses it has ended"));
}

// Of a session that was found to be that of a response.
absl::Status AsResponse(const absl::Status& status, const SessionTable& sessions,
                        const SessionKey& key) {
  if (absl::IsNotFound(status)) return NoResponse(sessions, key);
  return absl::IsAborted(status) ? InUse(key) : status;
}

absl::Status ForPrevious(absl::Status status) {
  if (!absl::IsNotFound(status)) return status;
  status.SetPayload(kParamPayload, absl::Cord("previous_response_id"));
  status.SetPayload(kCodePayload, absl::Cord("previous_response_not_found"));
  return status;
}

}  // namespace

std::string MakeResponseId() { return "resp_" + MakeRandomId() + MakeRandomId(); }

absl::StatusOr<std::shared_ptr<const StoredResponse>> FindResponse(const SessionTable& sessions,
                                                                   const SessionKey& key) {
  auto attachment = sessions.Attachment(key);
  // What cannot be an id is none.
  if (!attachment.ok()) return NoResponse(sessions, key);
  auto response = std::dynamic_pointer_cast<const StoredResponse>(*attachment);
  if (response == nullptr) return Missing(absl::StrCat("\"", key.id, "\" is no response"));
  return response;
}

absl::StatusOr<SessionInfo> ForkResponse(SessionTable& sessions, const SessionKey& key,
                                         const std::string& new_id) {
  const auto response = FindResponse(sessions, key);
  if (!response.ok()) return ForPrevious(response.status());
  if ((*response)->tokens == 0) {
    return absl::AbortedError(
        absl::StrCat("the response \"", key.id, "\" is in progress; try again when it has ended"));
  }
  auto fork = sessions.Fork(key, new_id, "", (*response)->tokens);
  if (absl::IsOutOfRange(fork.status())) {
    return ForPrevious(Missing(absl::StrCat(
        "the response \"", key.id,
        "\" cannot be continued: its session was used otherwise, and its state is gone")));
  }
  RIVULET_RETURN_IF_ERROR(ForPrevious(AsResponse(fork.status(), sessions, key)));
  // After the fork: a turn that began before it would show.
  const auto source = sessions.Get(key);
  if (!source.ok() || source->changes == 1) return fork;
  sessions.Delete({key.tenant, fork->id}).IgnoreError();
  return ForPrevious(Missing(absl::StrCat("the response \"", key.id,
                                          "\" cannot be continued: its session was used "
                                          "otherwise, and may hold another context")));
}

absl::Status DeleteResponse(SessionTable& sessions, const SessionKey& key) {
  RIVULET_RETURN_IF_ERROR(FindResponse(sessions, key).status());
  return AsResponse(sessions.Delete(key), sessions, key);
}

}  // namespace rivulet::openai
