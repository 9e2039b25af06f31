// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a ModelInfer call and a request of a ModelStreamInfer stream have in common.
// Threading: one thread at a time.
#ifndef RIVULET_SERVER_KSERVE_INFER_TURN_H_
#define RIVULET_SERVER_KSERVE_INFER_TURN_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/status.h"
#include "kserve/grpc_service.pb.h"
#include "server/kserve/infer_reply.h"
#include "server/kserve/infer_request.h"
#include "server/kserve/sequence_session.h"
#include "server/service/generation_call.h"
#include "server/service/service_context.h"

namespace rivulet::kserve {

class InferTurn {
 public:
  explicit InferTurn(const ServiceContext& service)
      : service_(service), session_(service.sessions) {}

  // Reads the request. `arrival`: when it came.
  absl::Status Read(const wire::ModelInferRequest& request, TimePoint arrival,
                    GenerationCall& call) {
    RIVULET_ASSIGN_OR_RETURN(request_, ReadInferRequest(request, service_.model.info.name()));
    if (request_.timeout.count() > 0) call.LimitDeadline(arrival + request_.timeout);
    reply_.emplace(request_.format);
    return absl::OkStatus();
  }
  bool streams() const { return request_.format.stream; }
  // Empty: the request belongs to no sequence.
  const std::string& session() const { return request_.sequence.session; }

  // Begins the caller's turn, on a worker.
  void Run(const Caller& caller, GenerationCall& call) {
    const absl::Status begun =
        session_.Begin(caller.tenant->name(), request_.sequence, request_.proto);
    begun.ok() ? call.Run(request_.proto) : call.Refuse(begun);
    request_.proto.Clear();
  }

  absl::StatusOr<std::optional<wire::ModelInferResponse>> Add(const v1::GenerateResponse& message) {
    session_.Said();
    auto response = reply_->Add(message);
    if (reply_->complete()) session_.End();
    return response;
  }
  bool LastIsSlow() const { return !streams() && reply_->kept_bytes() > kManyBytes; }

  // The turn has ended.
  void End() { session_.End(); }

 private:
  static constexpr size_t kManyBytes = size_t{1} << 20;

  const ServiceContext& service_;
  SequenceSession session_;
  InferRequest request_;
  std::optional<InferReply> reply_;
};

}  // namespace rivulet::kserve

#endif  // RIVULET_SERVER_KSERVE_INFER_TURN_H_
