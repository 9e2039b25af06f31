// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Sessions over HTTP: what gRPC's service Sessions does, with the same code behind it and the same
// messages in JSON. Turns are not here: they are requests to /v1/chat/completions and
// /v1/completions with the header x-session-id (generation.h). docs/http.md has the paths.
#ifndef RIVULET_SERVER_OPENAI_SESSIONS_H_
#define RIVULET_SERVER_OPENAI_SESSIONS_H_

#include <vector>

#include "server/http/http_server.h"
#include "server/service/service_context.h"

namespace rivulet::openai {

// The handlers run on the I/O thread and do their work on the pool, as calls of the service, which
// outlives them.
void AddSessionRoutes(const ServiceContext& service, std::vector<HttpRoute>& routes);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_SESSIONS_H_
