// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/options.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/cuda_device.h"
#include "kernels/base/status.h"
#include "kernels/recurrence/state.h"
#include "nlohmann/json.hpp"
#include "server/byte_size.h"
#include "server/cpu_count.h"

using rivulet::ByteSize;

ABSL_FLAG(std::string, model, "", "directory of the checkpoint to serve (required)");
ABSL_FLAG(std::string, listen, "0.0.0.0:8590", "HOST:PORT of gRPC; port 0: any free one");
ABSL_FLAG(std::string, http, "0.0.0.0:8591",
          "HOST:PORT of /metrics, /healthz, /readyz and /loglevel; port 0: any free one");
ABSL_FLAG(std::string, device, "cpu", "cpu or cuda");
ABSL_FLAG(std::string, dtype, "auto", "of the weights: auto (as in the checkpoint), fp32 or bf16");
ABSL_FLAG(std::string, state_dtype, "fp32", "of the matrices in bases: fp32 or bf16");
ABSL_FLAG(ByteSize, state_memory, ByteSize{uint64_t{1} << 30},
          "memory for session states: bytes, or a number with KiB, MiB, GiB or TiB");
ABSL_FLAG(uint64_t, state_context, 4096,
          "tokens that a session's share of --state-memory is sized for, where states grow with "
          "them (softmax attention, log-linear); longer sessions leave room for fewer");
ABSL_FLAG(std::string, level_overflow, "error",
          "log-linear models beyond the tokens that their levels reach: error ends the session "
          "there, clamp lets the last level hold all that is older");
ABSL_FLAG(uint32_t, threads, 0,
          "threads that compute; 0: one for each core, within the container's CPU quota");
ABSL_FLAG(uint32_t, max_queue, 256,
          "requests that may wait for their first token; more are refused");
ABSL_FLAG(uint32_t, max_prompt, 1u << 20, "tokens that a prompt may have");
ABSL_FLAG(uint32_t, drain_seconds, 30, "how long running streams may go on after SIGTERM");
ABSL_FLAG(uint32_t, session_ttl, 3600,
          "seconds that an idle session is kept; 0: until its slots are needed");
ABSL_FLAG(uint32_t, stalled_client_seconds, 300,
          "how long a stream that its client does not read keeps its slots");
ABSL_FLAG(std::string, config, "", "JSON file: an object of flag names and values");
ABSL_FLAG(std::string, mamba2_norm, "group",
          "gated norm of Mamba-2: group, or full as transformers computes it");
ABSL_FLAG(std::string, log_level, "info", "debug, info, warning, error or off");
ABSL_FLAG(bool, version, false, "print version and commit, then exit");
ABSL_FLAG(bool, help, false, "print this, then exit");

namespace rivulet {
namespace {

constexpr const char* kFlagNames[] = {
    "model",       "listen",       "http",          "device",         "dtype",
    "state-dtype", "state-memory", "state-context", "level-overflow", "threads",
    "max-queue",   "max-prompt",   "drain-seconds", "session-ttl",    "stalled-client-seconds",
    "config",      "mamba2-norm",  "log-level",     "version",        "help"};
constexpr uint32_t kMaxThreads = 1024;

std::string AllFlagNames() {
  return absl::StrJoin(kFlagNames, ", ", [](std::string* out, const char* name) {
    absl::StrAppend(out, "--", name);
  });
}

// The flag that an operator writes as --state-memory is state_memory in C++. Null: no such flag.
// Only our own: the libraries we link define flags too.
absl::CommandLineFlag* FindFlag(const std::string& name) {
  const auto same = [&](const char* known) { return name == known; };
  if (std::none_of(std::begin(kFlagNames), std::end(kFlagNames), same)) return nullptr;
  std::string identifier = name;
  std::replace(identifier.begin(), identifier.end(), '-', '_');
  return absl::FindCommandLineFlag(identifier);
}

absl::Status SetFlag(const std::string& name, const std::string& value, const std::string& where) {
  absl::CommandLineFlag* const flag = FindFlag(name);
  if (flag == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": unknown flag \"", name, "\"; known: ", AllFlagNames()));
  }
  std::string error;
  if (flag->ParseFrom(value, &error)) return absl::OkStatus();
  // absl's text may have several lines; the last one says what is wrong.
  const size_t line = error.find_last_of('\n');
  if (line != std::string::npos) error = error.substr(line + 1);
  return absl::InvalidArgumentError(absl::StrCat("--", name, "=\"", value, "\" in ", where,
                                                 " is no valid value: ", error, " (", flag->Help(),
                                                 ")"));
}

bool IsSwitch(const std::string& name) { return name == "version" || name == "help"; }

// Sets the flags that the command line names and returns which.
absl::StatusOr<std::set<std::string>> ReadCommandLine(const std::vector<std::string>& arguments) {
  const std::string where = "the command line";
  std::set<std::string> given;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.rfind("--", 0) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("unexpected argument \"", argument,
                       "\"; flags are written --name=value or --name value"));
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::string value = "true";
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (!IsSwitch(name) && FindFlag(name) != nullptr) {
      if (i + 1 == arguments.size()) {
        return absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value"));
      }
      value = arguments[++i];
    }
    RIVULET_RETURN_IF_ERROR(SetFlag(name, value, where));
    given.insert(name);
  }
  return given;
}

absl::StatusOr<nlohmann::json> ReadConfig(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    return absl::InvalidArgumentError(absl::StrCat("--config: cannot read \"", path, "\""));
  }
  nlohmann::json config = nlohmann::json::parse(text.str(), nullptr, false);
  if (!config.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--config: \"", path, "\" is not a JSON object of flag names and values, for example ",
        R"({"model": "models/tales", "threads": 2})"));
  }
  return config;
}

// Flags that the command line gave keep their value.
absl::Status ApplyConfig(const std::string& path, const std::set<std::string>& given) {
  RIVULET_ASSIGN_OR_RETURN(const nlohmann::json config, ReadConfig(path));
  for (const auto& [key, value] : config.items()) {
    if (value.is_structured() || value.is_null() || key == "config" || IsSwitch(key)) {
      return absl::InvalidArgumentError(absl::StrCat("--config: \"", path, "\": key \"", key,
                                                     "\" cannot be set to ", value.dump()));
    }
    if (given.count(key) > 0) continue;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    RIVULET_RETURN_IF_ERROR(SetFlag(key, text, absl::StrCat("\"", path, "\"")));
  }
  return absl::OkStatus();
}

absl::Status OneOf(const char* flag, const std::string& value,
                   std::initializer_list<const char*> choices) {
  for (const char* choice : choices) {
    if (value == choice) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=\"", value, "\": choose one of ", absl::StrJoin(choices, ", ")));
}

absl::Status AtLeastOne(const char* flag, uint32_t value) {
  if (value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=0: must be at least 1"));
}

absl::Status CheckDevice() {
  const std::string device = absl::GetFlag(FLAGS_device);
  RIVULET_RETURN_IF_ERROR(OneOf("device", device, {"cpu", "cuda"}));
  if (device == "cpu") return absl::OkStatus();
  const absl::StatusOr<int> devices = CudaDeviceCount();
  if (!devices.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device=cuda: ", devices.status().message(), "; use --device=cpu"));
  }
  return absl::InvalidArgumentError(
      "--device=cuda: this version serves models on the CPU only; use --device=cpu");
}

absl::Status CheckStateContext() {
  // The engine asks for at least one chunk, whose length is the device's.
  constexpr uint64_t kLeast = 1, kMost = uint64_t{1} << 30;
  const uint64_t tokens = absl::GetFlag(FLAGS_state_context);
  if (tokens >= kLeast && tokens <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--state-context=", tokens, ": from ", kLeast, " to ", kMost, " tokens"));
}

absl::Status CheckChoices() {
  RIVULET_RETURN_IF_ERROR(CheckDevice());
  RIVULET_RETURN_IF_ERROR(OneOf("dtype", absl::GetFlag(FLAGS_dtype), {"auto", "fp32", "bf16"}));
  RIVULET_RETURN_IF_ERROR(OneOf("state-dtype", absl::GetFlag(FLAGS_state_dtype), {"fp32", "bf16"}));
  RIVULET_RETURN_IF_ERROR(
      OneOf("mamba2-norm", absl::GetFlag(FLAGS_mamba2_norm), {"group", "full"}));
  RIVULET_RETURN_IF_ERROR(
      OneOf("level-overflow", absl::GetFlag(FLAGS_level_overflow), {"error", "clamp"}));
  RIVULET_RETURN_IF_ERROR(OneOf("log-level", absl::GetFlag(FLAGS_log_level),
                                {"debug", "info", "warning", "error", "off"}));
  RIVULET_RETURN_IF_ERROR(AtLeastOne("max-queue", absl::GetFlag(FLAGS_max_queue)));
  RIVULET_RETURN_IF_ERROR(AtLeastOne("max-prompt", absl::GetFlag(FLAGS_max_prompt)));
  RIVULET_RETURN_IF_ERROR(CheckStateContext());
  RIVULET_RETURN_IF_ERROR(
      AtLeastOne("stalled-client-seconds", absl::GetFlag(FLAGS_stalled_client_seconds)));
  if (absl::GetFlag(FLAGS_threads) > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("--threads=", absl::GetFlag(FLAGS_threads), ": at most ", kMaxThreads));
  }
  if (absl::GetFlag(FLAGS_model).empty()) {
    return absl::InvalidArgumentError("--model DIRECTORY is missing: which checkpoint to serve");
  }
  return absl::OkStatus();
}

DType ParseDType(const std::string& text) {
  return text == "bf16" ? DType::kBFloat16 : DType::kFloat32;
}

absl::StatusOr<ServerOptions> MakeOptions() {
  RIVULET_RETURN_IF_ERROR(CheckChoices());
  ServerOptions options;
  options.model = absl::GetFlag(FLAGS_model);
  RIVULET_ASSIGN_OR_RETURN(options.listen, ParseHostPort("listen", absl::GetFlag(FLAGS_listen)));
  RIVULET_ASSIGN_OR_RETURN(options.http, ParseHostPort("http", absl::GetFlag(FLAGS_http)));
  const std::string dtype = absl::GetFlag(FLAGS_dtype);
  if (dtype != "auto") options.weight_dtype = ParseDType(dtype);
  options.state_dtype = ParseDType(absl::GetFlag(FLAGS_state_dtype));
  options.state_memory = absl::GetFlag(FLAGS_state_memory).bytes;
  options.state_context = absl::GetFlag(FLAGS_state_context);
  if (absl::GetFlag(FLAGS_level_overflow) == "clamp") {
    options.level_overflow = LevelOverflow::kClamp;
  }
  options.threads = absl::GetFlag(FLAGS_threads);
  if (options.threads == 0) options.threads = UsableCpus();
  options.max_queue = absl::GetFlag(FLAGS_max_queue);
  options.max_prompt = absl::GetFlag(FLAGS_max_prompt);
  options.drain_seconds = absl::GetFlag(FLAGS_drain_seconds);
  options.session_ttl = absl::GetFlag(FLAGS_session_ttl);
  options.stalled_client_seconds = absl::GetFlag(FLAGS_stalled_client_seconds);
  options.mamba2_full_norm = absl::GetFlag(FLAGS_mamba2_norm) == "full";
  options.log_level = absl::GetFlag(FLAGS_log_level);
  return options;
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(const std::string& flag, const std::string& text) {
  const size_t colon = text.rfind(':');
  HostPort result;
  if (colon != std::string::npos) result.host = text.substr(0, colon);
  const bool bracketed =
      result.host.size() > 2 && result.host.front() == '[' && result.host.back() == ']';
  if (bracketed) result.host = result.host.substr(1, result.host.size() - 2);
  const bool bad_host =
      result.host.empty() || (!bracketed && result.host.find(':') != std::string::npos);
  if (bad_host || !absl::SimpleAtoi(text.substr(colon + 1), &result.port) || result.port < 0 ||
      result.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=\"", text, "\": give HOST:PORT with a port from 0 to 65535, ",
                     "for example 0.0.0.0:8590 or [::]:8590"));
  }
  return result;
}

absl::StatusOr<ServerOptions> ParseOptions(const std::vector<std::string>& arguments) {
  RIVULET_ASSIGN_OR_RETURN(const std::set<std::string> given, ReadCommandLine(arguments));
  ServerOptions options;
  options.show_help = absl::GetFlag(FLAGS_help);
  options.show_version = absl::GetFlag(FLAGS_version);
  if (options.show_help || options.show_version) return options;
  const std::string config = absl::GetFlag(FLAGS_config);
  if (!config.empty()) RIVULET_RETURN_IF_ERROR(ApplyConfig(config, given));
  return MakeOptions();
}

std::string OptionsHelp() {
  std::string help =
      "rivulet-server: serves a linear-time attention language model over gRPC.\n"
      "Flags, written --name=value or --name value:\n";
  for (const char* name : kFlagNames) {
    const absl::CommandLineFlag* const flag = FindFlag(name);
    absl::StrAppend(&help, "  --", name, "  ", flag->Help());
    if (!IsSwitch(name) && !flag->DefaultValue().empty()) {
      absl::StrAppend(&help, " (default ", flag->DefaultValue(), ")");
    }
    help += '\n';
  }
  return help;
}

}  // namespace rivulet
