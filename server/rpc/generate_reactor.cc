// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/rpc/generate_reactor.h"

#include <utility>

#include "rivulet/v1/inference.pb.h"
#include "server/rpc/status_map.h"
#include "server/rpc/wire.h"

namespace rivulet {

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateReactor::Start(
    const ServiceContext& service, grpc::CallbackServerContext& context,
    const grpc::ByteBuffer& request) {
  auto reactor = std::make_shared<GenerateReactor>(context, request);
  reactor->self_ = reactor;
  reactor->turn_ = std::make_shared<Turn>(service, context, "Generate", Clock::now(), reactor);
  if (!service.pool.Run([reactor] { reactor->Prepare(); }, request.Length())) {
    service.metrics.CountRequest(Outcome::kRejectedQueue);
    reactor->turn_->Refuse(TooManyCalls());
  }
  return reactor.get();
}

void GenerateReactor::Prepare() {
  v1::GenerateRequest proto;
  const absl::Status parsed = ParseMessage(wire_request_, &proto);
  wire_request_.Clear();
  if (!parsed.ok()) return turn_->Refuse(parsed);
  turn_->Run(proto);
}

void GenerateReactor::OnTurnEnd(const absl::Status& status) { FinishCall(*this, context_, status); }

void GenerateReactor::OnDone() {
  // Whoever still holds a reference (the turn's last caller, for a moment) deletes it.
  const std::shared_ptr<GenerateReactor> self = std::move(self_);
}

}  // namespace rivulet
