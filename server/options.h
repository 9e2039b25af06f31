// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The flags of rivulet-server: the command line over --config FILE over defaults. Each flag is one
// entry of a table in options.cc, and README.md lists the same names and defaults.
#ifndef RIVULET_SERVER_OPTIONS_H_
#define RIVULET_SERVER_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/dtype.h"
#include "kernels/mixers/mixer.h"
#include "server/security/tls_identity.h"

namespace rivulet {

struct HostPort {
  std::string host;  // an IPv6 address without its brackets
  int port = 0;      // 0: any free port
};

// Where drafts come from.
enum class Speculation : uint8_t { kOff, kLookup, kDraft, kMtp };
inline constexpr const char* kSpeculationNames[] = {"off", "lookup", "draft", "mtp"};

struct ServerOptions {
  std::string model;
  HostPort listen;
  HostPort http;
  TlsPaths tls;                         // no certificate: plain text
  std::string tokens;                   // file; empty: none are asked for
  bool insecure = false;                // plain text on addresses of other machines, too
  std::vector<std::string> http_hosts;  // further names of the HTTP port; see AllowedHosts
  std::optional<DType> weight_dtype;    // none: as in the checkpoint
  DType state_dtype = DType::kFloat32;
  std::optional<DType> kv_dtype;  // none: MixerOptions::KvDType
  bool cuda = false;              // the model runs on the GPU
  uint64_t state_memory = 0;      // bytes; 0: auto
  uint64_t state_context = 0;     // tokens; the engine asks for at least one chunk
  LevelOverflow level_overflow = LevelOverflow::kError;
  std::string packed_cache;  // directory; empty: none
  uint32_t threads = 0;      // at least 1
  uint32_t max_queue = 0;
  uint32_t max_prompt = 0;                 // tokens
  uint64_t max_context = 0;                // tokens of a session, kept as ids of 4 bytes
  uint64_t max_session_tokens = 0;         // of all sessions together
  uint32_t keep_positions = 0;             // of a session
  std::optional<uint32_t> keep_borders;    // likewise; none: auto
  std::optional<uint32_t> prompt_borders;  // tokens; 0: off, none: auto
  std::optional<uint64_t> prefix_cache;    // bytes; 0: off, none: auto
  Speculation speculate = Speculation::kOff;
  std::string lookup_text;    // file; empty: none
  std::string draft_model;    // directory; empty: none
  uint32_t draft_tokens = 0;  // of a row in a step
  uint32_t drain_seconds = 0;
  uint32_t session_ttl = 0;             // seconds; 0: idle sessions are kept
  uint32_t stalled_client_seconds = 0;  // at least 1
  std::string config_override;          // JSON object; empty: none
  std::string log_level;
  bool show_version = false;  // nothing else was checked
  bool show_help = false;
};

// INVALID_ARGUMENT, one line that names flag, value and remedy, when anything is wrong. `arguments`
// without the program's name. Never ends the process.
absl::StatusOr<ServerOptions> ParseOptions(const std::vector<std::string>& arguments);

// Whether only programs on this machine can connect there.
bool IsLoopback(const std::string& host);

// Every flag with its help and default.
std::string OptionsHelp();

// How many threads can compute at once: the cores that this process may run on, and no more than
// its control group's quota (a container's CPU limit, rounded up). More threads than the quota
// would all be stopped together for most of each period.
uint32_t UsableCpus();

// The cores that a cgroup v2 cpu.max file grants, rounded up: "250000 100000" is 3. 0: no limit, or
// no such text.
uint32_t CpusOfQuota(std::string_view cpu_max);

}  // namespace rivulet

#endif  // RIVULET_SERVER_OPTIONS_H_
