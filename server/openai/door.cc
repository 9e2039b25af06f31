// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/door.h"

#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/log/log.h"
#include "server/openai/completion_task.h"
#include "server/openai/errors.h"
#include "server/openai/json_body.h"
#include "server/openai/message_json.h"
#include "server/openai/response_task.h"
#include "server/openai/sessions.h"
#include "server/service/session_calls.h"

namespace rivulet::openai {
namespace {

// A text of 4 MiB, the longest that is tokenized, takes up to six times that in JSON ("\u00e9"),
// and a million token ids 7 MiB.
constexpr size_t kLargestBody = size_t{32} << 20;
// Requests that have no more to do than to end.
constexpr std::chrono::seconds kEndTime{10};

constexpr const char* kNotServed[] = {"/v1/embeddings", "/v1/moderations", "/v1/rerank",
                                      "/v1/audio/",     "/v1/images/",     "/v1/files",
                                      "/v1/batches",    "/v1/fine_tuning/"};

using Exchange = std::shared_ptr<HttpExchange>;

HttpResponse JsonResponse(const Json& body) {
  return {200, "application/json", {}, Dump(body) + "\n"};
}

// OpenAI's fields, vLLM's max_model_len, and all of GetModel.
Json DescribeModel(const ServedModel& served) {
  v1::Model model;
  (void)GetModel(served, {}, model);
  Json json = {{"id", model.name()},
               {"object", "model"},
               {"created", std::time(nullptr)},
               {"owned_by", "rivulet"}};
  if (model.max_context() > 0) json["max_model_len"] = model.max_context();
  json["rivulet"] = ParseJson(MessageJson(model)).value_or(Json());
  return json;
}

HttpResponse FindModel(const HttpRequest& request, const Json& model) {
  const std::string name =
      PercentDecoded(std::string_view(request.path).substr(std::strlen("/v1/models/")));
  const std::string served = model["id"];
  if (name == served) return JsonResponse(model);
  absl::Status missing = absl::NotFoundError(absl::StrCat(
      "the model '", name.substr(0, 100), "' is not served here; this is '", served, "'"));
  missing.SetPayload(kCodePayload, absl::Cord("model_not_found"));
  return ErrorResponse(missing);
}

void AddModels(const ServiceContext& service, std::vector<HttpRoute>& routes) {
  const auto model = std::make_shared<const Json>(DescribeModel(service.model));
  routes.push_back({"GET", "/v1/models", 0, [model](const Exchange& exchange) {
                      const Json list = Json::array({*model});
                      exchange->Respond(JsonResponse({{"object", "list"}, {"data", list}}));
                    }});
  routes.push_back({"GET", "/v1/models/", 0, [model](const Exchange& exchange) {
                      exchange->Respond(FindModel(exchange->request(), *model));
                    }});
}

void AddGeneration(const ServiceContext& service, std::vector<HttpRoute>& routes) {
  const auto add = [&](const char* path, Endpoint endpoint) {
    routes.push_back({"POST", path, kLargestBody, [&service, endpoint](const Exchange& exchange) {
                        StartGeneration(service, MakeCompletionTask(service, endpoint), exchange);
                      }});
  };
  add("/v1/chat/completions", Endpoint::kChat);
  add("/v1/completions", Endpoint::kCompletions);
}

void AddRefusals(std::vector<HttpRoute>& routes) {
  for (const char* const path : kNotServed) {
    routes.push_back({"", path, kLargestBody, [](const Exchange& exchange) {
                        exchange->Respond(ErrorResponse(absl::UnimplementedError(
                            absl::StrCat(exchange->request().path,
                                         " is not served: this server generates text, by "
                                         "/v1/chat/completions, /v1/completions and "
                                         "/v1/responses"))));
                      }});
  }
}

// Browsers let any page send simple requests to any address, also to this machine's own, and say
// so.
// Sec-Fetch-Site comes to loopback and over TLS only, Origin with every post.
absl::Status CheckNotFromAnotherSite(const HttpRequest& request) {
  const std::string* const site = request.Find("sec-fetch-site");
  const std::string* const origin = request.Find("origin");
  const std::string* const host = request.Find("host");
  const bool same_site = site == nullptr || *site == "same-origin" || *site == "none";
  const bool same_origin =
      origin == nullptr || (host != nullptr && origin->ends_with("://" + *host));
  if (same_site && same_origin) return absl::OkStatus();
  return absl::PermissionDeniedError(
      "a browser sent this for a page of another site; open this server's own page, or send the "
      "request from a program");
}

// Metrics have no secrets, and their collectors may have any name for this machine.
absl::Status CheckHost(const AllowedHosts& hosts, const HttpRequest& request, Scope scope) {
  const std::string* const host = request.Find("host");
  if (host == nullptr || scope == Scope::kMetrics || hosts.Allows(*host)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "the request's Host \"", host->substr(0, 100),
      "\" is not a name of this server, which listens on loopback: use localhost or 127.0.0.1, or "
      "start it with --http-host and that name"));
}

absl::StatusOr<CallerPtr> CallerOf(const Authenticator& authenticator, const AllowedHosts& hosts,
                                   const HttpRequest& request, Scope scope) {
  RIVULET_RETURN_IF_ERROR(CheckNotFromAnotherSite(request));
  RIVULET_RETURN_IF_ERROR(CheckHost(hosts, request, scope));
  std::optional<std::string_view> token;
  for (const HttpHeader& header : request.headers) {
    if (!absl::EqualsIgnoreCase(header.name, "authorization")) continue;
    token = token.has_value() ? "" : std::string_view(header.value);  // several are none
  }
  return authenticator.Admit(token, scope, request.peer_names);
}

// `metrics` may be null.
auto AdmitBy(const Authenticator& authenticator, AllowedHosts hosts, Metrics* metrics) {
  return [&authenticator, hosts = std::move(hosts), metrics](
             HttpRequest& request, Scope scope) -> std::optional<HttpResponse> {
    absl::StatusOr<CallerPtr> caller = CallerOf(authenticator, hosts, request, scope);
    if (caller.ok()) {
      request.caller = *std::move(caller);
      return std::nullopt;
    }
    if (metrics != nullptr) metrics->CountRequest(Outcome::kRejectedCaller);
    return ErrorResponse(caller.status());
  };
}

}  // namespace

HttpRoutes RoutesWhileLoading(std::vector<HttpRoute> others, const Authenticator& authenticator,
                              AllowedHosts hosts) {
  others.push_back({"", "/v1/", kLargestBody, [](const Exchange& exchange) {
                      exchange->Respond(ErrorResponse(
                          absl::UnavailableError("the server does not serve now: it loads its "
                                                 "model, or is shutting down")));
                    }});
  return {std::move(others), &HttpRefusal, AdmitBy(authenticator, std::move(hosts), nullptr)};
}

Door::Door(HttpServer& http, std::vector<HttpRoute> others, const ServiceContext& service,
           AllowedHosts hosts)
    : http_(http), others_(std::move(others)), service_(service), hosts_(std::move(hosts)) {
  std::vector<HttpRoute> routes = others_;
  AddModels(service_, routes);
  AddGeneration(service_, routes);
  AddResponseRoutes(service_, kLargestBody, routes);
  AddSessionRoutes(service_, routes);
  AddRefusals(routes);
  http_.SetRoutes({std::move(routes), &HttpRefusal,
                   AdmitBy(service_.authenticator, hosts_, &service_.metrics)});
}

Door::~Door() {
  http_.SetRoutes(RoutesWhileLoading(others_, service_.authenticator, hosts_));
  http_.CutExchanges();
  const int calls = service_.calls.WaitForNone(std::chrono::steady_clock::now() + kEndTime);
  if (calls > 0) LogWarning("calls_cut_off", {{"calls", calls}});
}

}  // namespace rivulet::openai
