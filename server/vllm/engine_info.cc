// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/vllm/engine_info.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace rivulet::vllm_engine {
namespace {

// Shorter ones make a rate that jumps.
constexpr std::chrono::seconds kRateTime{1};

int32_t Clamp(uint64_t value) {
  return static_cast<int32_t>(std::min<uint64_t>(value, std::numeric_limits<int32_t>::max()));
}

double Share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::string Iso8601Now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S+00:00", &utc)};
}

// The keys of generation_config.json that gateways apply to requests without them.
std::string DefaultsJson(const GenerationDefaults& defaults) {
  nlohmann::json json = nlohmann::json::object();
  if (defaults.temperature) json["temperature"] = *defaults.temperature;
  if (defaults.top_p) json["top_p"] = *defaults.top_p;
  if (defaults.top_k) json["top_k"] = *defaults.top_k;
  if (defaults.min_p) json["min_p"] = *defaults.min_p;
  if (defaults.repetition_penalty) json["repetition_penalty"] = *defaults.repetition_penalty;
  return json.empty() ? "" : json.dump();
}

}  // namespace

void EngineInfo::DescribeHealth(wire::HealthCheckResponse& response) const {
  const bool draining = service_.scheduler.draining();
  response.set_healthy(serving_ && !draining);
  response.set_message(draining   ? "the server is shutting down"
                       : serving_ ? "serving"
                                  : "the server does not serve now: its GPU has failed");
}

void EngineInfo::DescribeModel(wire::GetModelInfoResponse& response) const {
  const ServedModel& model = service_.model;
  const v1::Model& info = model.info;
  const uint64_t bounded = info.max_context() > 0 ? info.max_context() : service_.max_prompt;
  response.set_model_path(folder_);
  response.set_served_model_name(info.name());
  response.set_tokenizer_path(folder_);
  response.set_is_generation(true);
  response.set_max_context_length(static_cast<uint32_t>(Clamp(bounded)));
  response.set_max_req_input_len(Clamp(std::min<uint64_t>(bounded, service_.max_prompt)));
  response.set_vocab_size(info.vocab_size());
  response.set_model_type(info.architecture());
  for (const uint32_t id : model.eos_ids) response.add_eos_token_ids(Clamp(id));
  if (!model.begin_ids.empty()) response.set_bos_token_id(Clamp(model.begin_ids.front()));
  response.set_default_sampling_params_json(DefaultsJson(model.defaults));
}

void EngineInfo::DescribeServer(wire::GetServerInfoResponse& response) const {
  using std::chrono::duration;
  const Metrics& metrics = service_.metrics;
  const int64_t active = metrics.requests_running.value() + metrics.requests_waiting.value();
  response.set_active_requests(static_cast<uint32_t>(std::max<int64_t>(active, 0)));
  response.set_last_receive_timestamp(
      duration<double>(last_request_.load().time_since_epoch()).count());
  response.set_uptime_seconds(duration<double>(std::chrono::steady_clock::now() - start_).count());
  response.set_server_type("rivulet");
  response.set_data_parallel_size(1);
  response.set_model_dtype(service_.model.info.weight_dtype());
  response.set_max_num_seqs(Clamp(static_cast<uint64_t>(metrics.state_slots_total.value())));
  if (service_.model.grammars != nullptr) response.set_constrained_decoding_start("first_token");
}

double EngineInfo::TokensPerSecond() const {
  const auto now = std::chrono::steady_clock::now();
  MutexLock lock(&mutex_);
  if (now - counted_at_ < kRateTime) return tokens_per_second_;
  const uint64_t tokens = service_.metrics.generation_tokens.value();
  const std::chrono::duration<double> seconds = now - counted_at_;
  tokens_per_second_ = static_cast<double>(tokens - counted_tokens_) / seconds.count();
  counted_at_ = now;
  counted_tokens_ = tokens;
  return tokens_per_second_;
}

// A session's state has one size, so slots in use are what tokens are to a cache of keys and
// values.
absl::Status EngineInfo::DescribeLoads(const wire::GetLoadsRequest& request,
                                       wire::GetLoadsResponse& response) const {
  if (request.dp_rank() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("dp_rank = ", request.dp_rank(), ": there is one, rank 0"));
  }
  const Metrics& metrics = service_.metrics;
  response.set_timestamp(Iso8601Now());
  response.set_version(metrics.version);
  response.set_dp_rank_count(1);
  wire::SchedulerLoad& load = *response.add_loads();
  const int64_t running = metrics.requests_running.value();
  const int64_t waiting = metrics.requests_waiting.value();
  load.set_num_running_reqs(static_cast<int32_t>(running));
  load.set_num_waiting_reqs(static_cast<int32_t>(waiting));
  load.set_num_total_reqs(static_cast<int32_t>(running + waiting));
  const int64_t slots = metrics.state_slots_total.value();
  load.set_token_usage(Share(metrics.state_slots_used.value(), slots));
  load.set_gen_throughput(TokensPerSecond());
  const auto cached = static_cast<int64_t>(metrics.prompt_tokens_cached.value());
  const auto computed = static_cast<int64_t>(metrics.prompt_tokens_computed.value());
  load.set_cache_hit_rate(Share(cached, cached + computed));
  load.set_utilization(Share(running, slots));
  load.set_max_running_requests(static_cast<int32_t>(slots));
  return absl::OkStatus();
}

}  // namespace rivulet::vllm_engine
