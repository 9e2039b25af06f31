// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The OpenAI API on the HTTP port: /v1/models, /v1/chat/completions, /v1/completions and
// /v1/responses; and, beyond OpenAI's, /v1/sessions. docs/http.md is its contract. It serves no
// embeddings, files, images or audio, and answers so.
//
// Threading: on the thread that starts and ends the server.
#ifndef RIVULET_SERVER_OPENAI_DOOR_H_
#define RIVULET_SERVER_OPENAI_DOOR_H_

#include <chrono>
#include <vector>

#include "server/http/http_server.h"
#include "server/security/allowed_hosts.h"
#include "server/service/service_context.h"

namespace rivulet::openai {

// Before there is a model: `others`, and 503 for /v1. The authenticator outlives the routes.
// `hosts`: which names of the port the requests may have, but those for metrics and what is open to
// all.
HttpRoutes RoutesWhileLoading(std::vector<HttpRoute> others, const Authenticator& authenticator,
                              AllowedHosts hosts = {});

class Door {
 public:
  // Opens /v1 beside `others`. All outlive the door. `hosts` as above.
  Door(HttpServer& http, std::vector<HttpRoute> others, const ServiceContext& service,
       AllowedHosts hosts = {});
  // Closes /v1 and cuts off what is being answered on the port. Returns when no request uses the
  // service any more. REQUIRES: the scheduler has ended all requests, or will.
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

 private:
  HttpServer& http_;
  const std::vector<HttpRoute> others_;
  const ServiceContext& service_;
  const AllowedHosts hosts_;
};

}  // namespace rivulet::openai

#endif  // RIVULET_SERVER_OPENAI_DOOR_H_
