// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/json_call.h"

#include <utility>

#include "absl/status/status.h"
#include "kernels/base/status.h"
#include "server/openai/errors.h"
#include "server/service/call_status.h"
#include "server/service/tenant_request.h"

namespace rivulet::openai {
namespace {

// Counts while a worker may use the service for it.
class JsonCall {
 public:
  JsonCall(const ServiceContext& service, JsonMethod method, std::shared_ptr<HttpExchange> exchange,
           std::shared_ptr<TenantRequest> counted)
      : service_(service),
        method_(method),
        exchange_(std::move(exchange)),
        counted_(std::move(counted)) {
    service_.calls.Add(1);
  }
  ~JsonCall() { service_.calls.Add(-1); }
  JsonCall(const JsonCall&) = delete;
  JsonCall& operator=(const JsonCall&) = delete;

  void Refuse(const absl::Status& status) { exchange_->Respond(ErrorResponse(status)); }

  void Run() {
    HttpResponse response;
    const absl::Status status = OrNoMemory([&]() -> absl::Status {
      const HttpRequest& http = exchange_->request();
      RIVULET_ASSIGN_OR_RETURN(const std::string json, method_({service_, *http.caller}, http));
      response = {200, "application/json", {{"Cache-Control", "no-store"}}, json + "\n"};
      return absl::OkStatus();
    });
    if (!status.ok()) return Refuse(status);
    exchange_->Respond(std::move(response));
  }

 private:
  const ServiceContext& service_;
  const JsonMethod method_;
  const std::shared_ptr<HttpExchange> exchange_;
  const std::shared_ptr<TenantRequest> counted_;
};

}  // namespace

void StartJsonCall(const ServiceContext& service, JsonMethod method,
                   const std::shared_ptr<HttpExchange>& exchange) {
  auto counted = TenantRequest::Begin(service, exchange->request().caller->tenant);
  if (!counted.ok()) return exchange->Respond(ErrorResponse(counted.status()));
  const auto call = std::make_shared<JsonCall>(service, method, exchange, *std::move(counted));
  if (!service.pool.Run([call] { call->Run(); })) call->Refuse(TooManyCalls());
}

}  // namespace rivulet::openai
