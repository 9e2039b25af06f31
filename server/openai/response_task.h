// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// /v1/responses: responses that continue one another, kept as sessions (stored_response.h).
//
// Threading: as GenerationTask; the routes are for the HTTP server.
#ifndef RIVULET_SERVER_OPENAI_RESPONSE_TASK_H_
#define RIVULET_SERVER_OPENAI_RESPONSE_TASK_H_

#include <cstddef>
#include <vector>

#include "server/http/http_server.h"
#include "server/service/service_context.h"

namespace rivulet::openai {

// POST /v1/responses; GET and DELETE /v1/responses/ID; POST /v1/responses/ID/cancel. The service
// outlives them.
void AddResponseRoutes(const ServiceContext& service, size_t most_body_bytes,
                       std::vector<HttpRoute>& routes);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_RESPONSE_TASK_H_
