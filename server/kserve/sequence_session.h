// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The session of a request's sequence, made before its first turn and deleted after its last.
// Threading: one thread at a time.
#ifndef RIVULET_SERVER_KSERVE_SEQUENCE_SESSION_H_
#define RIVULET_SERVER_KSERVE_SEQUENCE_SESSION_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/status.h"
#include "rivulet/v1/inference.pb.h"
#include "server/kserve/infer_request.h"
#include "server/session/session_table.h"

namespace rivulet::kserve {

class SequenceSession {
 public:
  explicit SequenceSession(SessionTable& sessions) : sessions_(sessions) {}

  // Before the turn of a tenant. A sequence that starts again begins anew, as in Triton. ABORTED
  // while a turn of the old one runs.
  absl::Status Begin(const std::string& tenant, Sequence sequence, v1::GenerateRequest& request) {
    sequence_ = std::move(sequence);
    tenant_ = tenant;
    if (sequence_.start) {
      const absl::Status deleted = sessions_.Delete(key());
      if (!deleted.ok() && !absl::IsNotFound(deleted)) return deleted;
      RIVULET_RETURN_IF_ERROR(sessions_.Create(key(), "").status());
      made_ = true;
    }
    request.set_session_id(sequence_.session);
    return absl::OkStatus();
  }

  // The turn has said something, so that it has a state.
  void Said() { said_ = true; }

  // After the turn, before its client is told. Again does nothing.
  void End() {
    const bool ends = said_ ? sequence_.end : made_;
    if (ends && !std::exchange(ended_, true)) (void)sessions_.Delete(key());
  }

 private:
  SessionKey key() const { return {tenant_, sequence_.session}; }

  SessionTable& sessions_;
  std::string tenant_;
  Sequence sequence_;
  bool made_ = false;
  bool said_ = false;
  bool ended_ = false;
};

}  // namespace rivulet::kserve

#endif  // RIVULET_SERVER_KSERVE_SEQUENCE_SESSION_H_
