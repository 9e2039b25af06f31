// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/metrics/metrics.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"

namespace rivulet {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

constexpr const char* kOutcomeNames[kOutcomes] = {"stop",
                                                  "eos",
                                                  "length",
                                                  "scored",
                                                  "cancelled",
                                                  "stalled",
                                                  "deadline",
                                                  "error",
                                                  "rejected_invalid",
                                                  "rejected_session",
                                                  "rejected_queue",
                                                  "rejected_slots",
                                                  "rejected_draining",
                                                  "rejected_limit",
                                                  "rejected_caller"};

// Those that are counted; the others are no misses.
constexpr std::pair<PrefixMiss, const char*> kPrefixMissNames[] = {
    {PrefixMiss::kPromptLogprobs, "prompt_logprobs"},
    {PrefixMiss::kShort, "short"},
    {PrefixMiss::kUnknown, "unknown"},
    {PrefixMiss::kNotKept, "not_kept"}};
constexpr const char* kPrefixDropNames[kPrefixDrops] = {"slots", "size", "tokens"};

class Families {
 public:
  void AddGauge(const char* name, const char* help, double value, Labels labels = {}) {
    Add(name, help, MetricType::Gauge, std::move(labels)).gauge.value = value;
  }

  // A second call with the same name adds another label set to the family.
  void AddCounter(const char* name, const char* help, const Counter& counter, Labels labels = {}) {
    const auto value = static_cast<double>(counter.value());
    Add(name, help, MetricType::Counter, std::move(labels)).counter.value = value;
  }

  void AddHistogram(const char* name, const char* help, const Histogram& histogram) {
    ClientMetric::Histogram& shown = Add(name, help, MetricType::Histogram, {}).histogram;
    const auto bounds = histogram.upper_bounds();
    for (size_t i = 0; i <= bounds.size(); ++i) {
      shown.sample_count += histogram.count(i);
      const double bound = i < bounds.size() ? bounds[i] : std::numeric_limits<double>::infinity();
      shown.bucket.push_back({shown.sample_count, bound});
    }
    shown.sample_sum = histogram.sum();
  }

  std::string Text() const {
    std::ostringstream text;
    prometheus::TextSerializer().Serialize(text, families_);
    return text.str();
  }

 private:
  ClientMetric& Add(const char* name, const char* help, MetricType type, Labels labels) {
    const std::string full_name = std::string("rivulet_") + name;
    if (families_.empty() || families_.back().name != full_name) {
      families_.push_back({full_name, help, type, {}});
    }
    ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label = std::move(labels);
    return metric;
  }

  std::vector<MetricFamily> families_;
};

void AddGauges(const Metrics& m, Families& out) {
  const auto value = [](const Gauge& gauge) { return static_cast<double>(gauge.value()); };
  out.AddGauge("requests_running", "Requests that hold state slots.", value(m.requests_running));
  out.AddGauge("requests_waiting", "Requests before their first token; --max-queue bounds them.",
               value(m.requests_waiting));
  out.AddGauge("sessions", "Sessions, by where their state is.", value(m.sessions),
               {{"tier", StateTier(m)}});
  out.AddGauge("session_messages_bytes", "Bytes of the messages that sessions remember.",
               value(m.session_notes_bytes));
  out.AddGauge("state_bytes", "Bytes of session state in use.", value(m.state_bytes),
               {{"tier", StateTier(m)}});
  const double used = value(m.state_slots_used), total = value(m.state_slots_total);
  out.AddGauge("state_slots_used", "State slots in use.", used);
  out.AddGauge("state_slots_capacity", "State slots that --state-memory holds.", total);
  out.AddGauge("state_bases_used", "Slots of states at chunk borders in use; forks share them.",
               value(m.state_bases_used));
  out.AddGauge("prefix_cache_states", "States at chunk borders that the prefix cache keeps.",
               value(m.prefix_states));
  out.AddGauge("prefix_cache_bytes", "Bytes of these states; --prefix-cache bounds them.",
               value(m.prefix_bytes));
  out.AddGauge("prefix_cache_tokens", "Tokens that the prefix cache remembers, 4 bytes each.",
               value(m.prefix_tokens));
  const double pages = value(m.fullest_pages_used), all_pages = value(m.fullest_pages_total);
  out.AddGauge("state_slot_usage_ratio",
               "State slots in use / state slots, 0 to 1; of pages where these are fuller.",
               std::max(total > 0 ? used / total : 0, all_pages > 0 ? pages / all_pages : 0));
  const std::pair<const char*, const Gauge&> kinds[] = {
      {"weights", m.device_weights},         {"state_bases", m.device_bases},
      {"state_tails", m.device_tails},       {"state_pages", m.device_pages},
      {"temporaries", m.device_temporaries}, {"free", m.device_free}};
  for (const auto& [kind, gauge] : kinds) {
    out.AddGauge("device_memory_bytes", "Bytes of the GPU's memory, by what they are for.",
                 value(gauge), {{"kind", kind}});
  }
  out.AddGauge("draft_memory_bytes", "Bytes that drafts take for running completions.",
               value(m.draft_memory_bytes));
  out.AddGauge("draining", "1 while the server drains after SIGTERM.", value(m.draining));
  out.AddGauge("http_connections", "Open connections of the HTTP port.", value(m.http_connections));
  out.AddGauge("tls_certificate_expires_seconds",
               "When the certificate of --tls-cert expires, in Unix time; 0: no TLS.",
               value(m.tls_certificate_expires));
  out.AddGauge("build_info", "Constant 1; the labels name the build.", 1,
               {{"version", m.version}, {"commit", m.commit}});
  if (!m.model_known) return;
  out.AddGauge("model_info", "Constant 1; the labels name the model.", 1,
               {{"model_name", m.model_name},
                {"architecture", m.architecture},
                {"weight_dtype", m.weight_dtype},
                {"state_dtype", m.state_dtype},
                {"kv_dtype", m.kv_dtype},
                {"device", m.device}});
  const Labels source = {{"source", m.weights_were_packed ? "packed_cache" : "checkpoint"}};
  out.AddGauge("model_load_seconds", "Seconds that the last load of the weights took.",
               value(m.model_load_milliseconds) / 1000, source);
  out.AddGauge("model_load_bytes", "Bytes of the files that the weights were loaded from.",
               value(m.model_load_bytes), source);
}

void AddPrefixCounters(const Metrics& m, Families& out) {
  out.AddCounter("prefix_cache_hits_total", "Contexts that began with a kept state.",
                 m.prefix_hits);
  out.AddCounter("prefix_cache_tokens_reused_total", "Tokens before those states.",
                 m.prefix_tokens_reused);
  out.AddCounter("prefix_cache_waits_total",
                 "Requests that waited for another one to compute what both begin with.",
                 m.prefix_waits);
  for (const auto& [why, name] : kPrefixMissNames) {
    out.AddCounter("prefix_cache_misses_total", "Contexts that began without one, by reason.",
                   m.prefix_misses[static_cast<size_t>(why)], {{"reason", name}});
  }
  for (size_t i = 0; i < kPrefixDrops; ++i) {
    out.AddCounter("prefix_cache_evictions_total", "States that the cache dropped, by reason.",
                   m.prefix_drops[i], {{"reason", kPrefixDropNames[i]}});
  }
}

void AddCounters(const Metrics& m, Families& out) {
  out.AddCounter("prompt_tokens_total", "Prompt tokens, by where their state came from.",
                 m.prompt_tokens_computed, {{"source", "computed"}});
  out.AddCounter("prompt_tokens_total", "", m.prompt_tokens_cached, {{"source", "cached"}});
  out.AddCounter("generation_tokens_total", "Tokens generated.", m.generation_tokens);
  for (size_t i = 0; i < kOutcomes; ++i) {
    out.AddCounter("requests_total", "Requests that ended, by outcome.", m.requests[i],
                   {{"outcome", kOutcomeNames[i]}});
  }
  for (size_t i = 0; i < kSessionEnds; ++i) {
    out.AddCounter("sessions_ended_total", "Sessions that ended, by reason.", m.session_ends[i],
                   {{"reason", kSessionEndNames[i]}});
  }
  for (size_t i = 0; i < kHttpStatuses; ++i) {
    out.AddCounter("http_responses_total", "Responses of the HTTP port by status.",
                   m.http_responses[i], {{"status", kHttpStatusNames[i]}});
  }
  out.AddCounter("http_connections_refused_total",
                 "Connections of the HTTP port that found no descriptor or no room.",
                 m.http_connections_refused);
  out.AddCounter("session_forks_total", "Sessions made by ForkSession.", m.session_forks);
  out.AddCounter("session_rewinds_total", "Sessions taken back by RewindSession.",
                 m.session_rewinds);
  out.AddCounter("kept_positions_dropped_total",
                 "Positions that sessions could be rewound to, dropped for their slots.",
                 m.kept_positions_dropped);
  out.AddCounter("session_borders_dropped_total",
                 "States within turns of sessions, dropped for their slots.", m.borders_dropped);
  AddPrefixCounters(m, out);
  out.AddCounter("folds_total", "Tails folded into a base.", m.folds);
  for (size_t i = 0; i < kDraftSources; ++i) {
    out.AddCounter("draft_tokens_total", "Guesses of tokens that steps checked, by their source.",
                   m.draft_tokens[i], {{"source", kDraftSourceNames[i]}});
  }
  for (size_t i = 0; i < kDraftSources; ++i) {
    out.AddCounter("draft_tokens_accepted_total", "Guesses that were right, by their source.",
                   m.accepted_draft_tokens[i], {{"source", kDraftSourceNames[i]}});
  }
  out.AddCounter("graph_replays_total", "Recorded steps that the GPU ran.", m.graph_replays);
  out.AddCounter("device_failures_total", "Errors of the GPU, each of which loses all sessions.",
                 m.device_failures);
}

void AddHistograms(const Metrics& m, Families& out) {
  out.AddHistogram("time_to_first_token_seconds",
                   "Seconds from a request's arrival to its first token.", m.time_to_first_token);
  out.AddHistogram("inter_token_latency_seconds", "Seconds between two tokens of a completion.",
                   m.inter_token_latency);
  out.AddHistogram("e2e_request_latency_seconds", "Seconds from a request's arrival to its end.",
                   m.e2e_request_latency);
  out.AddHistogram("request_queue_time_seconds", "Seconds from a request's arrival to its slots.",
                   m.request_queue_time);
  out.AddHistogram("request_prefill_time_seconds",
                   "Seconds from a request's slots to the last token of its prompt.",
                   m.request_prefill_time);
  out.AddHistogram("decode_batch_size", "Decoding rows per step, of steps that have any.",
                   m.decode_batch_size);
  out.AddHistogram("device_step_time_seconds", "Seconds that the GPU spent on a step.",
                   m.device_step_time);
}

void AddTenant(const std::string& tenant, const TenantMetrics& m, Families& out) {
  const Labels who = {{"tenant", tenant}};
  out.AddCounter("tenant_requests_total", "Requests of a tenant that were taken.", m.requests, who);
  out.AddCounter("tenant_requests_refused_total", "Requests of a tenant over one of its limits.",
                 m.requests_refused, who);
  out.AddCounter("tenant_prompt_tokens_total", "Prompt tokens of a tenant's requests that ended.",
                 m.prompt_tokens, who);
  out.AddCounter("tenant_generation_tokens_total", "Tokens generated for a tenant.",
                 m.generation_tokens, who);
  out.AddGauge("tenant_requests_open", "Requests of a tenant that have not ended.",
               static_cast<double>(m.requests_open.value()), who);
}

}  // namespace

std::string PrometheusText(const Metrics& metrics, const std::vector<NamedTenantMetrics>& tenants) {
  Families families;
  AddGauges(metrics, families);
  AddCounters(metrics, families);
  AddHistograms(metrics, families);
  for (const NamedTenantMetrics& named : tenants) {
    AddTenant(named.tenant, *named.metrics, families);
  }
  return families.Text();
}

}  // namespace rivulet
