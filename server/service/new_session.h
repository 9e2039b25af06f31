// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A session that a request asks for by the name "new", in the protocols that name sessions in a
// header. Threading: one thread at a time.
#ifndef RIVULET_SERVER_SERVICE_NEW_SESSION_H_
#define RIVULET_SERVER_SERVICE_NEW_SESSION_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/base/status.h"
#include "rivulet/v1/inference.pb.h"
#include "server/log/log.h"
#include "server/session/session_table.h"

namespace rivulet {

inline constexpr std::string_view kNewSession = "new";

class NewSession {
 public:
  explicit NewSession(SessionTable& sessions) : sessions_(sessions) {}

  // If the request asks for a session, makes it and puts its id in. `method` is for the log.
  absl::Status MakeFor(v1::GenerateRequest& request, const char* method) {
    if (request.session_id() != kNewSession) return absl::OkStatus();
    const auto session = sessions_.Create("", "");
    RIVULET_RETURN_IF_ERROR(session.status());
    id_ = session->id;
    request.set_session_id(id_);
    LogInfo("session_created", {{"session_id", id_}, {"method", method}});
    return absl::OkStatus();
  }

  // The request failed before its client was told the id.
  void Drop() {
    if (!id_.empty()) (void)sessions_.Delete(id_);
  }

 private:
  SessionTable& sessions_;
  std::string id_;  // empty: none
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SERVICE_NEW_SESSION_H_
