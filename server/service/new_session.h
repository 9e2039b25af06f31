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

  // If the request of a tenant asks for a session, makes it and puts its id in. `method` is for the
  // log.
  absl::Status MakeFor(v1::GenerateRequest& request, const std::string& tenant,
                       const char* method) {
    if (request.session_id() != kNewSession) return absl::OkStatus();
    const auto session = sessions_.Create({tenant, ""}, "");
    RIVULET_RETURN_IF_ERROR(session.status());
    key_ = {tenant, session->id};
    request.set_session_id(key_.id);
    LogInfo("session_created", {{"tenant", tenant}, {"session_id", key_.id}, {"method", method}});
    return absl::OkStatus();
  }

  // The request failed before its client was told the id.
  void Drop() {
    if (!key_.id.empty()) (void)sessions_.Delete(key_);
  }

 private:
  SessionTable& sessions_;
  SessionKey key_ = "";  // without an id: none
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SERVICE_NEW_SESSION_H_
