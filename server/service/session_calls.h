// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The methods of every door that neither schedule nor tokenize: GetModel, and those of the service
// Sessions, as inference.proto describes them. They begin no turn.
//
// Threading: any thread; each takes microseconds, a list of 1000 sessions a millisecond. After an
// error nothing has changed, and the response is unspecified.
#ifndef RIVULET_SERVER_SERVICE_SESSION_CALLS_H_
#define RIVULET_SERVER_SERVICE_SESSION_CALLS_H_

#include "absl/status/status.h"
#include "rivulet/v1/inference.pb.h"
#include "server/service/service_context.h"

namespace rivulet {

absl::Status GetModel(const ServedModel& model, const v1::GetModelRequest& request,
                      v1::Model& response);

absl::Status CreateSession(const CallerContext& call, const v1::CreateSessionRequest& request,
                           v1::Session& response);
absl::Status GetSession(const CallerContext& call, const v1::GetSessionRequest& request,
                        v1::Session& response);
absl::Status ListSessions(const CallerContext& call, const v1::ListSessionsRequest& request,
                          v1::ListSessionsResponse& response);
absl::Status UpdateSession(const CallerContext& call, const v1::UpdateSessionRequest& request,
                           v1::Session& response);
absl::Status ForkSession(const CallerContext& call, const v1::ForkSessionRequest& request,
                         v1::Session& response);
absl::Status RewindSession(const CallerContext& call, const v1::RewindSessionRequest& request,
                           v1::Session& response);
absl::Status DeleteSession(const CallerContext& call, const v1::DeleteSessionRequest& request,
                           v1::DeleteSessionResponse& response);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SERVICE_SESSION_CALLS_H_
