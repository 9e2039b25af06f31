// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One Generate call: its gRPC side.
#ifndef RIVULET_SERVER_RPC_GENERATE_REACTOR_H_
#define RIVULET_SERVER_RPC_GENERATE_REACTOR_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>

#include "server/rpc/generation_call.h"
#include "server/rpc/service_context.h"

namespace rivulet {

class GenerateReactor : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public ResponseStream {
 public:
  // The reactor of a new call; it owns itself until OnDone. Does not block.
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(const ServiceContext& service,
                                                           grpc::CallbackServerContext& context,
                                                           const grpc::ByteBuffer& request);

  GenerateReactor(const ServiceContext& service, grpc::CallbackServerContext& context,
                  const grpc::ByteBuffer& request)
      : counted_(service.calls), context_(context), wire_request_(request) {}

  void OnWriteDone(bool ok) override { call_->OnWriteDone(ok); }
  void OnCancel() override { call_->Cancel(); }
  void OnDone() override;

  void Send(const grpc::ByteBuffer& message) override { StartWrite(&message); }
  void OnGenerationEnd(const absl::Status& status) override;

 private:
  void Prepare();

  CountedCall counted_;
  std::shared_ptr<GenerateReactor> self_;  // until OnDone
  grpc::CallbackServerContext& context_;
  grpc::ByteBuffer wire_request_;
  std::shared_ptr<GenerationCall> call_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_GENERATE_REACTOR_H_
