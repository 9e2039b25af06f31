// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/vllm/tokenizer_reactor.h"

#include <algorithm>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "kernels/base/status.h"
#include "server/rpc/counted_reactor.h"
#include "server/rpc/origin.h"
#include "server/rpc/status_map.h"
#include "server/rpc/wire.h"
#include "server/service/call_status.h"
#include "smg/common.pb.h"

namespace rivulet::vllm_engine {
namespace {

constexpr size_t kChunkBytes = 64 << 10;

class TokenizerReactor final : public CountedReactor<grpc::ServerWriteReactor<grpc::ByteBuffer>> {
 public:
  TokenizerReactor(CallCount& calls, TokenizerBundle& bundle, grpc::CallbackServerContext& context)
      : CountedReactor(calls), bundle_(bundle), context_(context) {}

  // Packing takes a while, which is nothing for the threads of short tasks.
  void Start(WorkerPool& pool, const std::shared_ptr<TokenizerReactor>& self) {
    Own(self);
    const auto work = [self] { self->Open(); };
    if (!pool.Run(work, WorkerPool::kShortBytes + 1)) End(TooManyCalls());
  }

  // In place of Start.
  void Refuse(const absl::Status& status, const std::shared_ptr<TokenizerReactor>& self) {
    Own(self);
    End(status);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return End(absl::CancelledError("cancelled by the client"));
    if (sent_ == archive_->zip.size()) return End(absl::OkStatus());
    Continue();
  }

 private:
  void Open() {
    const absl::Status opened = OrNoMemory([this] {
      if (context_.IsCancelled()) return absl::CancelledError("cancelled while it waited");
      auto archive = bundle_.Get();
      if (archive.ok()) archive_ = *std::move(archive);
      return archive.status();
    });
    opened.ok() ? Continue() : End(opened);
  }

  void Continue() {
    const absl::Status made = OrNoMemory([this] {
      smg::grpc::common::GetTokenizerChunk chunk;
      chunk.set_data(archive_->zip.substr(sent_, kChunkBytes));
      sent_ += chunk.data().size();
      if (sent_ == archive_->zip.size()) chunk.set_sha256(archive_->sha256);
      return SerializeMessage(chunk, &wire_chunk_);
    });
    made.ok() ? StartWrite(&wire_chunk_) : End(made);
  }

  void End(const absl::Status& status) { FinishCall(*this, context_, status); }

  TokenizerBundle& bundle_;
  grpc::CallbackServerContext& context_;
  std::shared_ptr<const TokenizerArchive> archive_;
  size_t sent_ = 0;  // bytes, with the write in flight
  grpc::ByteBuffer wire_chunk_;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartGetTokenizer(
    const ServiceContext& service, TokenizerBundle& bundle, grpc::CallbackServerContext& context) {
  const auto reactor = std::make_shared<TokenizerReactor>(service.calls, bundle, context);
  const absl::Status admitted = CallerOf(service, context, Scope::kGenerate).status();
  admitted.ok() ? reactor->Start(service.pool, reactor) : reactor->Refuse(admitted, reactor);
  return reactor.get();
}

}  // namespace rivulet::vllm_engine
