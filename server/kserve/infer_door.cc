// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/kserve/infer_door.h"

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kserve/grpc_service.grpc.pb.h"
#include "server/kserve/infer_reactors.h"
#include "server/kserve/model_info.h"
#include "server/rpc/open_streams.h"
#include "server/rpc/refusal.h"
#include "server/rpc/unary_call.h"

namespace rivulet::kserve {
namespace {

using Bytes = grpc::ByteBuffer;
using Context = grpc::CallbackServerContext;
using Unary = grpc::ServerUnaryReactor;
using wire::GRPCInferenceService;

absl::Status ServerLive(const ModelInfo&, const wire::ServerLiveRequest&,
                        wire::ServerLiveResponse& response) {
  response.set_live(true);
  return absl::OkStatus();
}

absl::Status ServerReady(const ModelInfo& info, const wire::ServerReadyRequest&,
                         wire::ServerReadyResponse& response) {
  response.set_ready(info.ready());
  return absl::OkStatus();
}

absl::Status ServerMetadata(const ModelInfo& info, const wire::ServerMetadataRequest&,
                            wire::ServerMetadataResponse& response) {
  return info.Server(response);
}

template <typename Request, typename Response,
          absl::Status (ModelInfo::*method)(const Request&, Response&) const>
absl::Status Call(const ModelInfo& info, const Request& request, Response& response) {
  return (info.*method)(request, response);
}

// There is no shared memory, so a region of any name is not registered.
template <typename Request, typename Response>
absl::Status NoRegions(const ModelInfo&, const Request& request, Response&) {
  if (request.name().empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("there is no shared memory '",
                                          request.name().substr(0, 100),
                                          "': tensors are sent with the requests"));
}

// Raw: methods take and give bytes (server/rpc/wire.h says why).
template <template <typename> typename... Methods>
struct RawMethods;
template <>
struct RawMethods<> {
  using Service = GRPCInferenceService::Service;
};
template <template <typename> typename First, template <typename> typename... Rest>
struct RawMethods<First, Rest...> {
  using Service = First<typename RawMethods<Rest...>::Service>;
};

template <typename Base>
using Live = GRPCInferenceService::WithRawCallbackMethod_ServerLive<Base>;
template <typename Base>
using Ready = GRPCInferenceService::WithRawCallbackMethod_ServerReady<Base>;
template <typename Base>
using Model = GRPCInferenceService::WithRawCallbackMethod_ModelReady<Base>;
template <typename Base>
using Server = GRPCInferenceService::WithRawCallbackMethod_ServerMetadata<Base>;
template <typename Base>
using Metadata = GRPCInferenceService::WithRawCallbackMethod_ModelMetadata<Base>;
template <typename Base>
using Infer = GRPCInferenceService::WithRawCallbackMethod_ModelInfer<Base>;
template <typename Base>
using Stream = GRPCInferenceService::WithRawCallbackMethod_ModelStreamInfer<Base>;
template <typename Base>
using Config = GRPCInferenceService::WithRawCallbackMethod_ModelConfig<Base>;
template <typename Base>
using Statistics = GRPCInferenceService::WithRawCallbackMethod_ModelStatistics<Base>;
template <typename Base>
using Index = GRPCInferenceService::WithRawCallbackMethod_RepositoryIndex<Base>;
template <typename Base>
using Load = GRPCInferenceService::WithRawCallbackMethod_RepositoryModelLoad<Base>;
template <typename Base>
using Unload = GRPCInferenceService::WithRawCallbackMethod_RepositoryModelUnload<Base>;
template <typename Base>
using Status = GRPCInferenceService::WithRawCallbackMethod_SystemSharedMemoryStatus<Base>;
template <typename Base>
using Register = GRPCInferenceService::WithRawCallbackMethod_SystemSharedMemoryRegister<Base>;
template <typename Base>
using Unregister = GRPCInferenceService::WithRawCallbackMethod_SystemSharedMemoryUnregister<Base>;
template <typename Base>
using CudaStatus = GRPCInferenceService::WithRawCallbackMethod_CudaSharedMemoryStatus<Base>;
template <typename Base>
using CudaRegister = GRPCInferenceService::WithRawCallbackMethod_CudaSharedMemoryRegister<Base>;
template <typename Base>
using CudaUnregister = GRPCInferenceService::WithRawCallbackMethod_CudaSharedMemoryUnregister<Base>;
template <typename Base>
using Trace = GRPCInferenceService::WithRawCallbackMethod_TraceSetting<Base>;
template <typename Base>
using Log = GRPCInferenceService::WithRawCallbackMethod_LogSettings<Base>;

using RawInference = RawMethods<Live, Ready, Model, Server, Metadata, Infer, Stream, Config,
                                Statistics, Index, Load, Unload, Status, Register, Unregister,
                                CudaStatus, CudaRegister, CudaUnregister, Trace, Log>::Service;

class InferService final : public RawInference {
 public:
  explicit InferService(const ServiceContext& service) : service_(service), info_(service) {}

  ModelInfo& info() { return info_; }
  OpenStreams& streams() { return streams_; }

  Unary* ModelInfer(Context* context, const Bytes* request, Bytes* response) override {
    return StartModelInfer(service_, *context, *request, response);
  }
  grpc::ServerBidiReactor<Bytes, Bytes>* ModelStreamInfer(Context* context) override {
    return StartModelStreamInfer(service_, *context, streams_);
  }

  Unary* ServerLive(Context* context, const Bytes* request, Bytes* response) override {
    return Run(&kserve::ServerLive, context, request, response);
  }
  Unary* ServerReady(Context* context, const Bytes* request, Bytes* response) override {
    return Run(&kserve::ServerReady, context, request, response);
  }
  Unary* ServerMetadata(Context* context, const Bytes* request, Bytes* response) override {
    return Run(&kserve::ServerMetadata, context, request, response);
  }
  Unary* ModelReady(Context* context, const Bytes* request, Bytes* response) override {
    return Run(&Call<wire::ModelReadyRequest, wire::ModelReadyResponse, &ModelInfo::Ready>, context,
               request, response);
  }
  Unary* ModelMetadata(Context* context, const Bytes* request, Bytes* response) override {
    return Run(&Call<wire::ModelMetadataRequest, wire::ModelMetadataResponse, &ModelInfo::Metadata>,
               context, request, response);
  }
  Unary* ModelConfig(Context* context, const Bytes* request, Bytes* response) override {
    return Run(&Call<wire::ModelConfigRequest, wire::ModelConfigResponse, &ModelInfo::Config>,
               context, request, response);
  }
  Unary* ModelStatistics(Context* context, const Bytes* request, Bytes* response) override {
    return Run(
        &Call<wire::ModelStatisticsRequest, wire::ModelStatisticsResponse, &ModelInfo::Statistics>,
        context, request, response);
  }
  Unary* RepositoryIndex(Context* context, const Bytes* request, Bytes* response) override {
    return Run(
        &Call<wire::RepositoryIndexRequest, wire::RepositoryIndexResponse, &ModelInfo::Index>,
        context, request, response);
  }
  Unary* SystemSharedMemoryStatus(Context* context, const Bytes* request,
                                  Bytes* response) override {
    return Run(
        &NoRegions<wire::SystemSharedMemoryStatusRequest, wire::SystemSharedMemoryStatusResponse>,
        context, request, response);
  }
  Unary* SystemSharedMemoryUnregister(Context* context, const Bytes* request,
                                      Bytes* response) override {
    return Run(&NoRegions<wire::SystemSharedMemoryUnregisterRequest,
                          wire::SystemSharedMemoryUnregisterResponse>,
               context, request, response);
  }
  Unary* CudaSharedMemoryStatus(Context* context, const Bytes* request, Bytes* response) override {
    return Run(
        &NoRegions<wire::CudaSharedMemoryStatusRequest, wire::CudaSharedMemoryStatusResponse>,
        context, request, response);
  }
  Unary* CudaSharedMemoryUnregister(Context* context, const Bytes* request,
                                    Bytes* response) override {
    return Run(&NoRegions<wire::CudaSharedMemoryUnregisterRequest,
                          wire::CudaSharedMemoryUnregisterResponse>,
               context, request, response);
  }

  Unary* RepositoryModelLoad(Context* context, const Bytes*, Bytes*) override {
    return RefuseUnary(service_, *context, kOneModel);
  }
  Unary* RepositoryModelUnload(Context* context, const Bytes*, Bytes*) override {
    return RefuseUnary(service_, *context, kOneModel);
  }
  Unary* SystemSharedMemoryRegister(Context* context, const Bytes*, Bytes*) override {
    return RefuseUnary(service_, *context, kNoSharedMemory);
  }
  Unary* CudaSharedMemoryRegister(Context* context, const Bytes*, Bytes*) override {
    return RefuseUnary(service_, *context, kNoSharedMemory);
  }
  Unary* TraceSetting(Context* context, const Bytes*, Bytes*) override {
    return RefuseUnary(service_, *context, "TraceSetting is not served: see the server's /metrics");
  }
  Unary* LogSettings(Context* context, const Bytes*, Bytes*) override {
    return RefuseUnary(service_, *context, "LogSettings is not served: see the server's /loglevel");
  }

 private:
  static constexpr char kOneModel[] =
      "models are not loaded or unloaded: the server serves the model it was started with";
  static constexpr char kNoSharedMemory[] =
      "shared memory is not served: send tensors with the requests";

  template <typename Request, typename Response>
  Unary* Run(absl::Status (*handler)(const ModelInfo&, const Request&, Response&), Context* context,
             const Bytes* request, Bytes* response) {
    return RunOnPool(service_, info_, handler, {context, request, response});
  }

  const ServiceContext& service_;
  ModelInfo info_;
  OpenStreams streams_;
};

class InferDoor final : public GrpcDoor {
 public:
  explicit InferDoor(const ServiceContext& service) : service_(service) {}

  const char* service_name() const override { return GRPCInferenceService::service_full_name(); }
  grpc::Service& service() override { return service_; }
  void SetServing(bool serving) override { service_.info().SetServing(serving); }
  void EndIdleStreams() override { service_.streams().Drain(); }

 private:
  InferService service_;
};

}  // namespace

std::unique_ptr<GrpcDoor> MakeDoor(const ServiceContext& service) {
  return std::make_unique<InferDoor>(service);
}

}  // namespace rivulet::kserve
