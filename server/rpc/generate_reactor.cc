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
  auto reactor = std::make_shared<GenerateReactor>(service, context, request);
  reactor->self_ = reactor;
  reactor->call_ =
      std::make_shared<GenerationCall>(service, context, "Generate", Clock::now(), reactor);
  if (!service.pool.Run([reactor] { reactor->Prepare(); }, request.Length())) {
    service.metrics.CountRequest(Outcome::kRejectedQueue);
    reactor->call_->Refuse(TooManyCalls());
  }
  return reactor.get();
}

void GenerateReactor::Prepare() {
  v1::GenerateRequest proto;
  const absl::Status parsed = OrNoMemory([&] { return ParseMessage(wire_request_, &proto); });
  wire_request_.Clear();
  if (!parsed.ok()) return call_->Refuse(parsed);
  call_->Run(proto);
}

void GenerateReactor::OnGenerationEnd(const absl::Status& status) {
  FinishCall(*this, context_, status);
}

void GenerateReactor::OnDone() {
  // The last reference may be that of call_, for a moment longer.
  const std::shared_ptr<GenerateReactor> self = std::move(self_);
}

}  // namespace rivulet
