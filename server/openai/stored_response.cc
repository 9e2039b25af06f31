// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/stored_response.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/openai/errors.h"

namespace rivulet::openai {
namespace {

absl::Status Missing(const std::string& message) {
  absl::Status status = absl::NotFoundError(message);
  status.SetPayload(kCodePayload, absl::Cord("response_not_found"));
  return status;
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
  if (absl::IsNotFound(attachment.status())) {
    return Missing(absl::StrCat("the response is not kept: ", attachment.status().message()));
  }
  RIVULET_RETURN_IF_ERROR(attachment.status());
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
    return ForPrevious(
        Missing(absl::StrCat("the state of the response is not kept: ", fork.status().message())));
  }
  RIVULET_RETURN_IF_ERROR(ForPrevious(fork.status()));
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
  return sessions.Delete(key);
}

}  // namespace rivulet::openai
