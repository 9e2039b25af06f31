// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Every metric of the server in one struct, and its text form for Prometheus. Names, units and help
// lines are in metrics.cc. A metric is added together with its feature and never renamed.
//
// Threading: any thread (instruments.h). PrometheusText is for the scraper's thread: it allocates.
#ifndef RIVULET_SERVER_METRICS_METRICS_H_
#define RIVULET_SERVER_METRICS_METRICS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/metrics/instruments.h"

namespace rivulet {

// How a request ended: the label of rivulet_requests_total.
enum class Outcome : uint8_t {
  kStop,
  kEos,
  kLength,
  kScored,
  kCancelled,
  kStalled,  // its client did not read
  kDeadline,
  kError,
  kRejectedInvalid,   // INVALID_ARGUMENT before it reached the queue
  kRejectedSession,   // no such session, or it is busy
  kRejectedQueue,     // --max-queue
  kRejectedSlots,     // does not fit into --state-memory
  kRejectedDraining,  // the server is shutting down
  kRejectedLimit,     // a limit of its tenant
  kRejectedCaller,    // no valid token, or without the scope
};
inline constexpr size_t kOutcomes = static_cast<size_t>(Outcome::kRejectedCaller) + 1;

// Why a session ended: the label of rivulet_sessions_ended_total.
enum class SessionEnd : uint8_t {
  kDeleted,
  kExpired,     // --session-ttl
  kEvicted,     // the least recently used, for the slots
  kFailed,      // its state was lost in a failed step
  kTenantLeft,  // the --tokens file
};
inline constexpr size_t kSessionEnds = static_cast<size_t>(SessionEnd::kTenantLeft) + 1;
inline constexpr const char* kSessionEndNames[kSessionEnds] = {"deleted", "expired", "evicted",
                                                               "failed", "tenant_left"};

// Where drafts come from: the label of rivulet_draft_tokens_total, in the order of DraftSource.
inline constexpr size_t kDraftSources = 3;
inline constexpr const char* kDraftSourceNames[kDraftSources] = {"lookup", "model", "mtp"};

// Why a request that began a context found no state to start from: a label of
// rivulet_prefix_cache_misses_total.
enum class PrefixMiss : uint8_t {
  kNone,            // it started from one; the API's CacheMiss has the same numbers
  kOff,             // the server has no cache
  kContinues,       // it continued what its session holds
  kPromptLogprobs,  // its prompt's logits were asked for
  kShort,           // its prompt has no chunk border before its last token
  kUnknown,         // no context that is remembered began with its first chunk
  kNotKept,         // one did, and no state on the way is kept
};
inline constexpr size_t kPrefixMisses = static_cast<size_t>(PrefixMiss::kNotKept) + 1;

// Why the prefix cache dropped a state: the label of rivulet_prefix_cache_evictions_total.
enum class PrefixDrop : uint8_t {
  kSlots,   // a request needed the slots
  kSize,    // --prefix-cache
  kTokens,  // its tokens were forgotten
};
inline constexpr size_t kPrefixDrops = static_cast<size_t>(PrefixDrop::kTokens) + 1;

// What the responses of the HTTP port say: the label of rivulet_http_responses_total. "gone": the
// client was gone before its response began.
inline constexpr size_t kHttpStatuses = 4;
inline constexpr const char* kHttpStatusNames[kHttpStatuses] = {"2xx", "4xx", "5xx", "gone"};

// Seconds, from 1 ms to 43 minutes: vLLM's edges, so that its dashboards' panels can be reused.
inline constexpr std::array kRequestSeconds = {.001, .005, .01, .02,  .04,  .06,  .08, .1,
                                               .25,  .5,   .75, 1.0,  2.5,  5.0,  7.5, 10.,
                                               20.,  40.,  80., 160., 640., 2560.};
// Seconds between two tokens, from 100 µs: a small model decodes in less than vLLM's first edge.
inline constexpr std::array kTokenSeconds = {.0001, .0002, .0005, .001, .002, .005, .01, .02, .05,
                                             .1,    .2,    .5,    1.0,  2.0,  5.0,  10., 20.};
inline constexpr std::array kRowCounts = {1.,   2.,   5.,   10.,   20.,  50.,
                                          100., 200., 500., 1000., 2000.};

// Of one tenant (server/security).
struct TenantMetrics {
  Counter requests, requests_refused, prompt_tokens, generation_tokens;
  Gauge requests_open;
};
struct NamedTenantMetrics {
  std::string tenant;
  std::shared_ptr<const TenantMetrics> metrics;
};

struct Metrics {
  Gauge requests_running;
  Gauge requests_waiting;
  Gauge state_bytes;
  Gauge state_slots_used;
  Gauge state_slots_total;
  // Of the kind of pages that is fullest; 0 for a model whose states have none.
  Gauge fullest_pages_used;
  Gauge fullest_pages_total;
  // Of a GPU, in bytes; all 0 on the CPU.
  Gauge device_weights, device_bases, device_tails, device_pages, device_temporaries, device_free;
  // Of the last load of the weights, by the source that `weights_were_packed` names.
  Gauge model_load_milliseconds, model_load_bytes;
  std::atomic<bool> weights_were_packed{false};  // mapped from --packed-cache
  Gauge draining;
  Gauge http_connections;
  Gauge tls_certificate_expires;  // Unix seconds; 0: no TLS
  Gauge sessions;
  Gauge session_notes_bytes;
  Gauge state_bases_used;
  // Of the prefix cache.
  Gauge prefix_states, prefix_bytes, prefix_tokens;

  Counter prompt_tokens_computed;
  Counter prompt_tokens_cached;
  Counter generation_tokens;
  std::array<Counter, kOutcomes> requests;
  Counter folds;
  // By kDraftSourceNames.
  std::array<Counter, kDraftSources> draft_tokens, accepted_draft_tokens;
  Gauge draft_memory_bytes;
  Counter graph_replays;
  Counter device_failures;
  std::array<Counter, kSessionEnds> session_ends;
  Counter http_connections_refused;
  std::array<Counter, kHttpStatuses> http_responses;  // by kHttpStatusNames
  Counter session_forks;
  Counter session_rewinds;
  Counter kept_positions_dropped;
  Counter borders_dropped;
  Counter prefix_hits;
  Counter prefix_tokens_reused;
  Counter prefix_waits;
  std::array<Counter, kPrefixMisses> prefix_misses;
  std::array<Counter, kPrefixDrops> prefix_drops;

  Histogram time_to_first_token{kRequestSeconds};
  Histogram inter_token_latency{kTokenSeconds};
  Histogram e2e_request_latency{kRequestSeconds};
  Histogram request_queue_time{kRequestSeconds};
  Histogram request_prefill_time{kRequestSeconds};
  Histogram decode_batch_size{kRowCounts};
  Histogram device_step_time{kTokenSeconds};

  // Labels of build_info; set before the first scrape.
  std::string version, commit;
  // Labels of model_info, which is shown from when `model_known` is set; constant from then on.
  std::string model_name, architecture, weight_dtype, state_dtype, kv_dtype;
  std::string device;  // "cpu" or the GPU's name
  std::atomic<bool> model_known{false};

  void CountRequest(Outcome outcome) { requests[static_cast<size_t>(outcome)].Add(); }
  void CountSessionEnd(SessionEnd why) { session_ends[static_cast<size_t>(why)].Add(); }
  void CountHttpResponse(int status) {
    const size_t name = status == 499 ? 3 : status < 400 ? 0 : status < 500 ? 1 : 2;
    http_responses[name].Add();
  }
  void CountPrefixDrop(PrefixDrop why) { prefix_drops[static_cast<size_t>(why)].Add(); }
  void CountPrefixMiss(PrefixMiss why) { prefix_misses[static_cast<size_t>(why)].Add(); }
};

// Where the engine keeps states: "device", a GPU's memory, or "host".
inline const char* StateTier(const Metrics& metrics) {
  return metrics.device_weights.value() != 0 ? "device" : "host";
}

// The exposition format, text 0.0.4.
// `tenants`: those of --tokens; none without.
std::string PrometheusText(const Metrics& metrics,
                           const std::vector<NamedTenantMetrics>& tenants = {});

}  // namespace rivulet

#endif  // RIVULET_SERVER_METRICS_METRICS_H_
