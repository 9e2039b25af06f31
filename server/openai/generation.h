// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One HTTP request that generates: its body becomes a GenerationCall, whose messages become a
// reply.
//
//   I/O thread    StartGeneration; later the ends of writes, and that the client is gone
//   worker        reads and checks the body, submits; builds a reply that is long
//   dispatcher    hands over what was generated
//
// A client that does not read fills its connection's buffer, then the request's outbox, and the
// scheduler leaves its rows out (outbox.h); after --stalled-client-seconds the connection is cut.
#ifndef RIVULET_SERVER_OPENAI_GENERATION_H_
#define RIVULET_SERVER_OPENAI_GENERATION_H_

#include <memory>

#include "server/http/http_exchange.h"
#include "server/openai/api_request.h"
#include "server/service/service_context.h"

namespace rivulet::openai {

// The service outlives all its calls (ServiceContext::calls). On the I/O thread.
void StartGeneration(const ServiceContext& service, Endpoint endpoint,
                     const std::shared_ptr<HttpExchange>& exchange);

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_GENERATION_H_
