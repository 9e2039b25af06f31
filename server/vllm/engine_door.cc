// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/vllm/engine_door.h"

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "server/rpc/refusal.h"
#include "server/rpc/unary_call.h"
#include "server/vllm/engine_info.h"
#include "server/vllm/generate_reactor.h"
#include "server/vllm/running_calls.h"
#include "server/vllm/tokenizer_bundle.h"
#include "server/vllm/tokenizer_reactor.h"
#include "vllm/vllm_engine.grpc.pb.h"

namespace rivulet::vllm_engine {
namespace {

using Bytes = grpc::ByteBuffer;
using Context = grpc::CallbackServerContext;
using Unary = grpc::ServerUnaryReactor;
using Writer = grpc::ServerWriteReactor<Bytes>;
using wire::VllmEngine;

absl::Status HealthCheck(const EngineInfo& info, const wire::HealthCheckRequest&,
                         wire::HealthCheckResponse& response) {
  info.DescribeHealth(response);
  return absl::OkStatus();
}

absl::Status GetModelInfo(const EngineInfo& info, const wire::GetModelInfoRequest&,
                          wire::GetModelInfoResponse& response) {
  info.DescribeModel(response);
  return absl::OkStatus();
}

absl::Status GetServerInfo(const EngineInfo& info, const wire::GetServerInfoRequest&,
                           wire::GetServerInfoResponse& response) {
  info.DescribeServer(response);
  return absl::OkStatus();
}

absl::Status GetLoads(const EngineInfo& info, const wire::GetLoadsRequest& request,
                      wire::GetLoadsResponse& response) {
  return info.DescribeLoads(request, response);
}

// Of the caller's tenant. Nothing is waited for: no request that comes later finds what was kept.
absl::Status FlushCache(const CallerContext& caller, const smg::grpc::common::FlushCacheRequest&,
                        smg::grpc::common::FlushCacheResponse& response) {
  caller.service.scheduler.ForgetPrefixesOf(caller.caller.tenant->name());
  response.set_success(true);
  response.set_message("nothing is kept of earlier prompts; sessions keep their states");
  return absl::OkStatus();
}

// Raw: methods take and give bytes (server/rpc/wire.h says why).
using RawGenerate = VllmEngine::WithRawCallbackMethod_Generate<VllmEngine::Service>;
using RawEmbed = VllmEngine::WithRawCallbackMethod_Embed<RawGenerate>;
using RawHealth = VllmEngine::WithRawCallbackMethod_HealthCheck<RawEmbed>;
using RawFlush = VllmEngine::WithRawCallbackMethod_FlushCache<RawHealth>;
using RawStart = VllmEngine::WithRawCallbackMethod_StartProfile<RawFlush>;
using RawStop = VllmEngine::WithRawCallbackMethod_StopProfile<RawStart>;
using RawAbort = VllmEngine::WithRawCallbackMethod_Abort<RawStop>;
using RawModel = VllmEngine::WithRawCallbackMethod_GetModelInfo<RawAbort>;
using RawServer = VllmEngine::WithRawCallbackMethod_GetServerInfo<RawModel>;
using RawLoads = VllmEngine::WithRawCallbackMethod_GetLoads<RawServer>;
using RawTokenizer = VllmEngine::WithRawCallbackMethod_GetTokenizer<RawLoads>;
using RawEngine = VllmEngine::WithRawCallbackMethod_SubscribeKvEvents<RawTokenizer>;

class EngineService final : public RawEngine {
 public:
  EngineService(const ServiceContext& service, const std::string& folder)
      : service_(service), info_(service, folder), bundle_(folder, service.model.begin_ids) {}

  EngineInfo& info() { return info_; }

  Writer* Generate(Context* context, const Bytes* request) override {
    info_.NoteRequest();
    return StartGenerate(service_, running_, *context, *request);
  }
  Unary* HealthCheck(Context* context, const Bytes* request, Bytes* response) override {
    return RunOnPool(service_, info_, &vllm_engine::HealthCheck, {context, request, response});
  }
  Unary* Abort(Context* context, const Bytes* request, Bytes* response) override {
    const auto abort = [this](const CallerContext& call, const wire::AbortRequest& aborted,
                              wire::AbortResponse&) {
      for (const std::string& id : aborted.request_ids()) running_.Stop(call.Key(id));
      return absl::OkStatus();
    };
    return RunForCaller<wire::AbortRequest, wire::AbortResponse>(
        service_, Scope::kGenerate, {context, request, response}, abort,
        /*counts=*/true);
  }
  Unary* GetModelInfo(Context* context, const Bytes* request, Bytes* response) override {
    return RunOnPool(service_, info_, &vllm_engine::GetModelInfo, {context, request, response});
  }
  Unary* GetServerInfo(Context* context, const Bytes* request, Bytes* response) override {
    return RunOnPool(service_, info_, &vllm_engine::GetServerInfo, {context, request, response});
  }
  Unary* GetLoads(Context* context, const Bytes* request, Bytes* response) override {
    return RunOnPool(service_, info_, &vllm_engine::GetLoads, {context, request, response});
  }

  Unary* Embed(Context* context, const Bytes*, Bytes*) override {
    return RefuseUnary(service_, *context, "Embed is not served: the model generates text");
  }
  Unary* FlushCache(Context* context, const Bytes* request, Bytes* response) override {
    return RunOnPool(service_, Scope::kGenerate, &vllm_engine::FlushCache,
                     {context, request, response});
  }
  Unary* StartProfile(Context* context, const Bytes*, Bytes*) override {
    return RefuseUnary(service_, *context, "StartProfile is not served: see the server's /metrics");
  }
  Unary* StopProfile(Context* context, const Bytes*, Bytes*) override {
    return RefuseUnary(service_, *context, "StopProfile is not served: see the server's /metrics");
  }
  Writer* GetTokenizer(Context* context, const Bytes*) override {
    return StartGetTokenizer(service_, bundle_, *context);
  }
  Writer* SubscribeKvEvents(Context* context, const Bytes*) override {
    return RefuseStream(service_, *context,
                        "SubscribeKvEvents is not served: a session's state is no cache of blocks; "
                        "GetLoads says how busy the server is");
  }

 private:
  const ServiceContext& service_;
  EngineInfo info_;
  TokenizerBundle bundle_;
  RunningCalls running_;
};

class EngineDoor final : public GrpcDoor {
 public:
  EngineDoor(const ServiceContext& service, const std::string& folder)
      : service_(service, folder) {}

  const char* service_name() const override { return VllmEngine::service_full_name(); }
  grpc::Service& service() override { return service_; }
  void SetServing(bool serving) override { service_.info().SetServing(serving); }

 private:
  EngineService service_;
};

}  // namespace

std::unique_ptr<GrpcDoor> MakeDoor(const ServiceContext& service, const std::string& folder) {
  return std::make_unique<EngineDoor>(service, std::filesystem::absolute(folder).string());
}

}  // namespace rivulet::vllm_engine
