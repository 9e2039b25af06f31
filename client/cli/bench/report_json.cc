// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "client/cli/bench/report.h"

namespace rivulet::cli::bench {
namespace {

using Json = nlohmann::ordered_json;

Json SettingsJson(const BenchOptions& o) {
  return {{"server", o.common.server},
          {"loop", o.rate > 0 ? "open" : "closed"},
          {"concurrency", o.rate > 0 ? 0 : o.concurrency},
          {"rate", o.rate},
          {"arrival", ToString(o.arrival)},
          {"requests", o.requests},
          {"duration_seconds", o.requests > 0 ? o.duration_seconds : PhaseSeconds(o)},
          {"warmup_seconds", o.warmup_seconds},
          {"drain_seconds", o.drain_seconds},
          {"timeout_seconds", o.common.timeout_seconds},
          {"connections", o.connections},
          {"max_in_flight", o.max_in_flight},
          {"prompt_tokens", ToString(o.prompt_tokens)},
          {"output_tokens", ToString(OutputTokens(o))},
          {"prompt_file", o.prompt_file},
          {"temperature", o.temperature ? Json(*o.temperature) : Json()},
          {"seed", o.seed},
          {"turns", o.turns},
          {"interfere_prompt", o.interfere_prompt},
          {"slo_ttft_ms", o.slo_ttft_ms},
          {"slo_itl_ms", o.slo_itl_ms}};
}

Json ModelJson(const v1::Model& model) {
  return {{"name", model.name()},
          {"architecture", model.architecture()},
          {"parameters", model.parameters()},
          {"vocab_size", model.vocab_size()},
          {"weight_dtype", model.weight_dtype()},
          {"state_dtype", model.state_dtype()},
          {"state_bytes_per_session", model.state_bytes_per_session()}};
}

Json LatencyJson(const LatencyHistogram& h) {
  return {{"count", h.count()},
          {"p50", Milliseconds(h.Percentile(0.50))},
          {"p95", Milliseconds(h.Percentile(0.95))},
          {"p99", Milliseconds(h.Percentile(0.99))},
          {"min", Milliseconds(h.min())},
          {"max", Milliseconds(h.max())},
          {"mean", h.mean_nanoseconds() * 1e-6}};
}

Json ErrorsJson(const ErrorTable& errors) {
  Json kinds = Json::array();
  for (const auto& [kind, count] : errors.by_kind()) {
    kinds.push_back({{"code", kind.first}, {"text", kind.second}, {"count", count}});
  }
  Json codes = Json::object();
  for (const auto& [code, count] : errors.by_code()) codes[code] = count;
  return {{"total", errors.total()}, {"by_code", codes}, {"by_kind", kinds}};
}

Json TurnsJson(const PhaseStatistics& phase) {
  Json turns = Json::array();
  for (const TurnStatistics& turn : phase.turns) {
    turns.push_back({{"succeeded", turn.succeeded},
                     {"prompt_tokens", turn.prompt_tokens},
                     {"cached_tokens", turn.cached_tokens},
                     {"first_token_ms", LatencyJson(turn.first_token)}});
  }
  return turns;
}

Json RatesJson(const PhaseStatistics& phase) {
  return {{"output_tokens_per_second", phase.PerSecond(phase.output_tokens)},
          {"tokens_per_second", phase.PerSecond(phase.output_tokens + phase.prompt_tokens)},
          {"requests_per_second", phase.PerSecond(phase.completed)},
          {"goodput_per_second", phase.PerSecond(phase.good)}};
}

Json PhaseJson(const PhaseStatistics& phase) {
  Json json = {{"name", phase.name},
               {"seconds", phase.seconds()},
               {"due", phase.due},
               {"succeeded", phase.succeeded},
               {"failed", phase.failed},
               {"cut_off", phase.cut_off},
               {"not_sent", phase.not_sent},
               {"wrong_length", phase.wrong_length},
               {"completed", phase.completed},
               {"good", phase.good},
               {"output_tokens", phase.output_tokens},
               {"prompt_tokens", phase.prompt_tokens},
               {"messages", phase.messages}};
  json.update(RatesJson(phase));
  json["first_token_ms"] = LatencyJson(phase.first_token);
  json["inter_token_ms"] = LatencyJson(phase.token_gap);
  json["message_gap_ms"] = LatencyJson(phase.message_gap);
  json["per_token_mean_ms"] = LatencyJson(phase.per_token_mean);
  json["end_to_end_ms"] = LatencyJson(phase.end_to_end);
  json["send_lag_ms"] = LatencyJson(phase.send_lag);
  json["errors"] = ErrorsJson(phase.errors);
  if (!phase.turns.empty()) json["turns"] = TurnsJson(phase);
  return json;
}

// Null if there is nothing to compare with.
Json RatioJson(const LatencyHistogram& with, const LatencyHistogram& without, double share) {
  const double base = Milliseconds(without.Percentile(share));
  return base > 0 ? Json(Milliseconds(with.Percentile(share)) / base) : Json();
}

Json RatiosJson(const LatencyHistogram& with, const LatencyHistogram& without) {
  return {{"p50", RatioJson(with, without, 0.50)},
          {"p95", RatioJson(with, without, 0.95)},
          {"p99", RatioJson(with, without, 0.99)}};
}

Json InterferenceJson(const BenchOptions& options, const RunResult& result) {
  if (result.phases.size() < 2) return {};
  const PhaseStatistics& without = result.phases[0];
  const PhaseStatistics& with = result.phases[1];
  return {{"prompt_tokens", options.interfere_prompt},
          {"succeeded", with.interference.succeeded},
          {"failed", with.interference.failed},
          {"first_token_ms", LatencyJson(with.interference.first_token)},
          {"inter_token_ratio", RatiosJson(with.token_gap, without.token_gap)},
          {"message_gap_ratio", RatiosJson(with.message_gap, without.message_gap)}};
}

Json ClientJson(const RunResult& result) {
  return {{"cpu_seconds", result.client_cpu_seconds},
          {"wall_seconds", result.wall_seconds},
          {"tokens", result.total_tokens},
          {"cpu_microseconds_per_token", result.ClientMicrosecondsPerToken()}};
}

}  // namespace

std::string JsonReport(const BenchOptions& options, const RunResult& result) {
  Json json = {{"tool", "rivulet bench"},
               {"format", 1},
               {"client_version", options.client_version},
               {"started", result.started},
               {"ending", result.ending},
               {"model", ModelJson(result.model)},
               {"settings", SettingsJson(options)},
               {"phases", Json::array()}};
  for (const PhaseStatistics& phase : result.phases) json["phases"].push_back(PhaseJson(phase));
  if (options.interfere_prompt > 0) json["interference"] = InterferenceJson(options, result);
  json["client"] = ClientJson(result);
  json["notes"] = Doubts(options, result);
  // Error texts come from the server and may contain any bytes.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace rivulet::cli::bench
