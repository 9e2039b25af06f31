// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A request that a worker answers with JSON at once, without the scheduler.
#ifndef RIVULET_SERVER_OPENAI_JSON_CALL_H_
#define RIVULET_SERVER_OPENAI_JSON_CALL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/http/http_exchange.h"
#include "server/service/service_context.h"

namespace rivulet::openai {

// The JSON of the response; on a worker.
using JsonMethod = absl::StatusOr<std::string> (*)(const CallerContext& service,
                                                   const HttpRequest& http);

// Counts as a call of the service, which outlives it. On the I/O thread.
void StartJsonCall(const ServiceContext& service, JsonMethod method,
                   const std::shared_ptr<HttpExchange>& exchange);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_JSON_CALL_H_
