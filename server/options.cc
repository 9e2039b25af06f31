// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/options.h"

#include <arpa/inet.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/base/cuda_device.h"
#include "kernels/base/numbers.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr uint64_t kMaxThreads = 1024;
constexpr uint64_t kMaxStateContext = uint64_t{1} << 30;
constexpr uint64_t kMaxSessionTokens = uint64_t{1} << 40;
constexpr uint32_t kMaxKeptPositions = 1024;
constexpr uint32_t kMaxKeptBorders = 65536;
constexpr uint32_t kMaxPromptBorders = uint32_t{1} << 20;
constexpr uint32_t kMostDraftTokens = 15;  // kMostDrafts

// Checks a flag's text and sets its member. An error says what to give instead; flag and text are
// put before it.
using Read = std::function<absl::Status(const std::string&, ServerOptions&)>;

struct Flag {
  const char* name;
  const char* value;  // what it takes, for --help; null: nothing, its text is true or false
  const char* text;   // its default
  const char* help;
  Read read;
};

absl::Status Give(const std::string& remedy) { return absl::InvalidArgumentError(remedy); }

template <typename Number>
Read NumberFrom(uint64_t least, Number ServerOptions::*member,
                uint64_t most = std::numeric_limits<Number>::max()) {
  return [=](const std::string& text, ServerOptions& options) {
    const std::optional<uint64_t> number = ReadNumber<uint64_t>(text);
    if (!number.has_value() || *number < least || *number > most) {
      return Give(absl::StrCat("give a number from ", least, " to ", most));
    }
    options.*member = static_cast<Number>(*number);
    return absl::OkStatus();
  };
}

template <typename Value>
Read OneOf(Value ServerOptions::*member, std::vector<std::pair<std::string, Value>> choices) {
  return [=](const std::string& text, ServerOptions& options) {
    std::vector<std::string> names;
    for (const auto& [name, value] : choices) {
      names.push_back(name);
      if (name != text) continue;
      options.*member = value;
      return absl::OkStatus();
    }
    return Give(absl::StrCat("choose one of ", absl::StrJoin(names, ", ")));
  };
}

// Any text.
Read ReadText(std::string ServerOptions::*member) {
  return [=](const std::string& text, ServerOptions& options) {
    options.*member = text;
    return absl::OkStatus();
  };
}

absl::Status ReadConfigOverride(const std::string& text, ServerOptions& options) {
  options.config_override = text;
  const bool object = nlohmann::json::parse(text, nullptr, false).is_object();
  return text.empty() || object ? absl::OkStatus() : Give("give a JSON object {...}");
}

absl::Status ReadModel(const std::string& text, ServerOptions& options) {
  options.model = text;
  return text.empty() ? Give("give the directory of the checkpoint to serve") : absl::OkStatus();
}

// "HOST:PORT", "[IPv6]:PORT".
Read Address(HostPort ServerOptions::*member) {
  return [=](const std::string& text, ServerOptions& options) {
    HostPort& address = options.*member;
    const size_t colon = text.rfind(':');
    address.host = colon == std::string::npos ? "" : text.substr(0, colon);
    const bool bracketed =
        address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']';
    if (bracketed) address.host = address.host.substr(1, address.host.size() - 2);
    const bool bad_host =
        address.host.empty() || (!bracketed && absl::StrContains(address.host, ":"));
    const auto port = ReadNumber<uint16_t>(std::string_view(text).substr(colon + 1));
    if (!bad_host && port.has_value()) {
      address.port = *port;
      return absl::OkStatus();
    }
    return Give(
        "give HOST:PORT with a port from 0 to 65535, for example 0.0.0.0:8590 or [::]:8590");
  };
}

absl::StatusOr<uint64_t> ReadBytes(const std::string& text) {
  absl::string_view number = text;
  uint64_t unit = 1;
  for (const auto& [suffix, shift] :
       {std::pair("KiB", 10), {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}) {
    if (absl::ConsumeSuffix(&number, suffix)) unit = uint64_t{1} << shift;
  }
  const double bytes = ReadNumber<double>(ToStd(number)).value_or(0) * static_cast<double>(unit);
  // Beyond 2^63 they would not fit; no machine has it.
  if (bytes < 1 || bytes >= 9.2e18) {
    return Give("give bytes, or a number with KiB, MiB, GiB or TiB, above 0; or auto");
  }
  return static_cast<uint64_t>(bytes);
}

absl::Status ReadStateMemory(const std::string& text, ServerOptions& options) {
  options.state_memory = 0;
  if (text == "auto") return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(options.state_memory, ReadBytes(text));
  return absl::OkStatus();
}

absl::Status ReadPrefixCache(const std::string& text, ServerOptions& options) {
  options.prefix_cache = std::nullopt;
  if (text == "auto") return absl::OkStatus();
  options.prefix_cache = 0;
  if (text == "off") return absl::OkStatus();
  const auto bytes = ReadBytes(text);
  if (!bytes.ok()) return Give(absl::StrCat(bytes.status().message(), ", or off"));
  options.prefix_cache = *bytes;
  return absl::OkStatus();
}

// A number, or auto, which leaves the member empty.
Read NumberOrAuto(std::optional<uint32_t> ServerOptions::*member, uint64_t most,
                  uint32_t multiple_of = 1) {
  return [=](const std::string& text, ServerOptions& options) {
    options.*member = std::nullopt;
    if (text == "auto") return absl::OkStatus();
    const std::optional<uint32_t> number = ReadNumber<uint32_t>(text);
    if (!number.has_value() || *number > most || *number % multiple_of != 0) {
      const std::string kind =
          multiple_of > 1 ? absl::StrCat("multiple of ", multiple_of) : "number";
      return Give(absl::StrCat("give auto, or a ", kind, " from 0 to ", most));
    }
    options.*member = number;
    return absl::OkStatus();
  };
}

absl::Status ReadDevice(const std::string& text, ServerOptions& options) {
  options.cuda = text == "cuda";
  if (text == "cpu") return absl::OkStatus();
  if (text != "cuda") return Give("choose one of cpu, cuda");
  const absl::StatusOr<int> devices = CudaDeviceCount();
  if (devices.ok()) return absl::OkStatus();
  // As the other flags' errors spell it.
  return Give(absl::StrReplaceAll(devices.status().message(), {{"--device cpu", "--device=cpu"}}));
}

std::vector<Flag> ModelFlags() {
  using O = ServerOptions;
  return {
      {"model", "DIR", "",
       "the checkpoint to serve, or models--ORG--NAME of the hub's cache (required)", ReadModel},
      {"listen", "HOST:PORT", "127.0.0.1:8590", "gRPC; port 0: any free one", Address(&O::listen)},
      {"http", "HOST:PORT", "127.0.0.1:8591",
       "the OpenAI API, /metrics, /healthz, /readyz and /loglevel; port 0: any free one",
       Address(&O::http)},
      {"device", "cpu|cuda", "cpu", "where the model runs: cuda is an H100 or H200", ReadDevice},
      {"dtype", "auto|fp32|bf16|fp8", "auto",
       "weights in memory; auto: as in the checkpoint, and bf16 with --device cuda, where alone "
       "fp8 "
       "(e4m3, a scale for each output) is possible",
       OneOf(&O::weight_dtype, {{"auto", std::nullopt},
                                {"fp32", DType::kFloat32},
                                {"bf16", DType::kBFloat16},
                                {"fp8", DType::kFloat8}})},
      {"state-dtype", "fp32|bf16", "fp32", "matrices in the bases of session states",
       OneOf(&O::state_dtype, {{"fp32", DType::kFloat32}, {"bf16", DType::kBFloat16}})},
      {"kv-dtype", "auto|fp32|bf16", "auto",
       "keys and values of softmax attention; auto: bf16 with --device cuda unless --dtype is "
       "fp32, "
       "else fp32",
       OneOf(&O::kv_dtype,
             {{"auto", std::nullopt}, {"fp32", DType::kFloat32}, {"bf16", DType::kBFloat16}})},
  };
}

Read TlsFile(std::string TlsPaths::*member) {
  return [=](const std::string& text, ServerOptions& options) {
    options.tls.*member = text;
    return absl::OkStatus();
  };
}

absl::Status ReadInsecure(const std::string& text, ServerOptions& options) {
  options.insecure = text == "true";
  return text == "true" || text == "false" ? absl::OkStatus() : Give("give true or false");
}

absl::Status ReadHttpHosts(const std::string& text, ServerOptions& options) {
  options.http_hosts = absl::StrSplit(text, ',', absl::SkipEmpty());
  for (const std::string& name : options.http_hosts) {
    if (name.find_first_of(" /[]:*@") == std::string::npos) continue;
    return Give(
        "give names of this machine without ports, as a browser would know it, separated by "
        "commas");
  }
  return absl::OkStatus();
}

std::vector<Flag> AccessFlags() {
  return {
      {"tls-cert", "FILE", "", "certificate chain (PEM) for TLS on both ports; with --tls-key",
       TlsFile(&TlsPaths::certificate)},
      {"tls-key", "FILE", "", "its private key (PEM, without a passphrase)",
       TlsFile(&TlsPaths::key)},
      {"tls-client-ca", "FILE", "",
       "clients must show a certificate that one of these (PEM) has signed (mutual TLS)",
       TlsFile(&TlsPaths::client_ca)},
      {"tokens", "FILE", "",
       "JSON file of hashes of the bearer tokens that may be used, with their tenants, scopes and "
       "limits; all these files are read again when they change",
       ReadText(&ServerOptions::tokens)},
      {"insecure", nullptr, "false",
       "listen in plain text also where other machines can connect, which is refused otherwise",
       ReadInsecure},
      {"http-host", "NAMES", "",
       "further names, separated by commas, that browsers may know the HTTP port by, beside "
       "localhost "
       "and addresses, where it listens on loopback without --tokens",
       ReadHttpHosts},
  };
}

std::vector<Flag> StateFlags() {
  using O = ServerOptions;
  return {
      {"state-memory", "BYTES", "auto",
       "memory for session states: bytes, or a number with KiB, MiB, GiB or TiB; auto: 1GiB, or "
       "with --device cuda what the GPU has left",
       ReadStateMemory},
      {"state-context", "TOKENS", "4096",
       "tokens that a session's share of --state-memory is sized for, where states grow with them "
       "(softmax attention, log-linear); longer sessions leave room for fewer",
       NumberFrom(1, &O::state_context, kMaxStateContext)},
      {"level-overflow", "error|clamp", "error",
       "log-linear models at the end of what their levels reach: error ends the session, clamp "
       "lets the last level hold everything older",
       OneOf(&O::level_overflow,
             {{"error", LevelOverflow::kError}, {"clamp", LevelOverflow::kClamp}})},
      {"packed-cache", "DIR", "",
       "where packed weights are kept on disk, so that the next start need not pack them; not for "
       "--device cuda",
       ReadText(&O::packed_cache)},
      {"threads", "N", "0", "compute threads; 0: one per core, within the container's CPU quota",
       NumberFrom(0, &O::threads, kMaxThreads)},
  };
}

std::vector<Flag> LimitFlags() {
  using O = ServerOptions;
  return {
      {"max-queue", "N", "256", "requests that may wait for their first token; more are refused",
       NumberFrom(1, &O::max_queue)},
      {"max-prompt", "TOKENS", "1048576", "longest prompt", NumberFrom(1, &O::max_prompt)},
      {"max-context", "TOKENS", "4194304",
       "longest context of a session; beside its state, a session takes 4 bytes a token",
       NumberFrom(1, &O::max_context)},
      {"max-session-tokens", "TOKENS", "268435456",
       "tokens that all sessions may hold together, 4 bytes each; idle sessions make room",
       NumberFrom(1, &O::max_session_tokens, kMaxSessionTokens)},
  };
}

std::vector<Flag> KeptFlags() {
  using O = ServerOptions;
  return {
      {"keep-positions", "N", "8",
       "beginnings of turns, the last ones, that a session can be rewound to; each may hold a "
       "state",
       NumberFrom(0, &O::keep_positions, kMaxKeptPositions)},
      {"keep-borders", "auto|N", "auto",
       "states within its last turns that a session keeps, one in 16 tokens, so that a rewind "
       "between two kept positions computes at most 15 tokens again; fewer where slots are needed; "
       "auto: as many as leave a quarter of the slots free; 0: none",
       NumberOrAuto(&O::keep_borders, kMaxKeptBorders)},
      {"prompt-borders", "auto|TOKENS", "auto",
       "keep such a state of prompts at least every so many tokens, a multiple of 16; 0: only "
       "where a step ends anyway; auto: 16, or for log-linear delta rules 0, since prompts "
       "are cut there for it",
       NumberOrAuto(&O::prompt_borders, kMaxPromptBorders, 16)},
      {"prefix-cache", "auto|off|BYTES", "auto",
       "states that are kept of what prompts begin with, so that the next prompt with the same "
       "beginning starts there; part of --state-memory, and given up where requests or sessions "
       "need it; auto: at most half of it",
       ReadPrefixCache},
  };
}

std::vector<Flag> GuessFlags() {
  using O = ServerOptions;
  return {
      {"speculate", "off|lookup|draft|mtp", "off",
       "guess the next tokens and check several in one step, which changes no token: by what "
       "followed the same tokens before, by --draft-model, or by the checkpoint's own head for "
       "further tokens (mtp)",
       OneOf(&O::speculate, {{"off", Speculation::kOff},
                             {"lookup", Speculation::kLookup},
                             {"draft", Speculation::kDraft},
                             {"mtp", Speculation::kMtp}})},
      {"lookup-text", "FILE", "", "UTF-8 text in which --speculate lookup finds tokens too",
       ReadText(&O::lookup_text)},
      {"draft-model", "DIR", "",
       "a small model with the same vocabulary for --speculate draft; it runs on the CPU, and its "
       "states take an eighth of --state-memory (128MiB with auto) beside it",
       ReadText(&O::draft_model)},
      {"draft-tokens", "N", "15",
       "with --speculate: the most guesses that a stream checks in one step, 1 to 15",
       NumberFrom(1, &O::draft_tokens, kMostDraftTokens)},
  };
}

std::vector<Flag> OperationFlags() {
  using O = ServerOptions;
  return {
      {"drain-seconds", "S", "30", "how long running streams may continue after SIGTERM",
       NumberFrom(0, &O::drain_seconds)},
      {"session-ttl", "S", "3600",
       "how long an idle session is kept; 0: until its slots are needed",
       NumberFrom(0, &O::session_ttl)},
      {"stalled-client-seconds", "S", "300",
       "how long a stream keeps its slots while its client does not read",
       NumberFrom(1, &O::stalled_client_seconds)},
      {"log-level", "LEVEL", "info", "debug, info, warning, error or off",
       OneOf<std::string>(&O::log_level, {{"debug", "debug"},
                                          {"info", "info"},
                                          {"warning", "warning"},
                                          {"error", "error"},
                                          {"off", "off"}})},
      {"override-config", "JSON", "",
       "keys of the checkpoint's config.json to replace, for example {\"norm_groups\": 1}",
       ReadConfigOverride},
  };
}

// Each flag, in the order of --help.
const std::vector<Flag>& Flags() {
  static const auto* const flags = [] {
    auto* const all = new std::vector<Flag>();
    for (const auto group : {&ModelFlags, &AccessFlags, &StateFlags, &LimitFlags, &KeptFlags,
                             &GuessFlags, &OperationFlags}) {
      for (Flag& flag : group()) all->push_back(std::move(flag));
    }
    return all;
  }();
  return *flags;
}

std::string Described(const Flag& flag) {
  return *flag.text == '\0' ? flag.help : absl::StrCat(flag.help, " (default ", flag.text, ")");
}

// The syntax of the command line, and the texts of the flags before they are read.
struct CommandLine {
  CommandLine() : texts(Flags().size()) {
    app.set_help_flag();
    for (size_t i = 0; i < texts.size(); ++i) {
      const Flag& flag = Flags()[i];
      texts[i].value = flag.text;
      Add(flag.name, texts[i].value, flag.value, Described(flag));
    }
    Add("config", config, "FILE", "JSON object of flag names and values; the command line wins");
    app.add_flag("--version", version, "print version and commit, then exit");
    app.add_flag("--help", help, "print this, then exit");
  }
  void Add(const std::string& name, std::string& text, const char* value, const std::string& help) {
    if (value == nullptr) {
      app.add_flag(absl::StrCat("--", name, "{true}"), text, help);
    } else {
      app.add_option("--" + name, text, help)->type_name(value)->take_last();
    }
  }
  bool gave(const char* name) const { return app.count(absl::StrCat("--", name)) > 0; }

  CLI::App app{"Serves a linear-time attention language model over gRPC.", "rivulet-server"};
  struct Text {
    std::string value;
    std::string where;  // for errors, if not from the command line
  };
  std::vector<Text> texts;  // as Flags()
  std::string config;
  bool version = false;
  bool help = false;
};

std::string FlagNames() {
  return absl::StrJoin(Flags(), ", ", [](std::string* out, const Flag& flag) {
    absl::StrAppend(out, "--", flag.name);
  });
}

// CLI11 takes an empty value of a flag like --insecure, and {}, for none.
absl::Status CheckValues(const std::vector<std::string>& arguments) {
  for (const Flag& flag : Flags()) {
    if (flag.value != nullptr) continue;
    for (const char* const value : {"", "{}"}) {
      const std::string text = absl::StrCat("--", flag.name, "=", value);
      if (std::find(arguments.begin(), arguments.end(), text) == arguments.end()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag.name, "=\"", value, "\": give true or false"));
    }
  }
  return absl::OkStatus();
}

absl::Status Parse(CommandLine& line, const std::vector<std::string>& arguments) {
  RIVULET_RETURN_IF_ERROR(CheckValues(arguments));
  try {
    line.app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    return absl::OkStatus();
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        error.what(), "; write --name=value or --name value with one of ", FlagNames()));
  }
}

absl::StatusOr<nlohmann::json> ReadConfig(const std::string& path) {
  constexpr size_t kMostBytes = size_t{1} << 20;  // a device file may have no end
  std::ifstream file(path);
  std::string text(kMostBytes + 1, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size())) && !file.eof()) {
    return absl::InvalidArgumentError(absl::StrCat("--config: cannot read \"", path, "\""));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMostBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--config: \"", path, "\" has more than ", kMostBytes, " bytes"));
  }
  nlohmann::json config = nlohmann::json::parse(text, nullptr, false);
  if (config.is_object()) return config;
  return absl::InvalidArgumentError(absl::StrCat(
      "--config: \"", path, "\" is not a JSON object of flag names and values, for example ",
      R"({"model": "models/tales", "threads": 2})"));
}

// Flags that the command line gave keep its text.
absl::Status ApplyConfig(CommandLine& line) {
  RIVULET_ASSIGN_OR_RETURN(const nlohmann::json config, ReadConfig(line.config));
  for (const auto& entry : config.items()) {
    const std::string& key = entry.key();  // clang 14 captures no structured binding
    const nlohmann::json& value = entry.value();
    const auto flag = std::find_if(Flags().begin(), Flags().end(),
                                   [&key](const Flag& known) { return key == known.name; });
    if (flag == Flags().end() || value.is_null()) {
      return absl::InvalidArgumentError(absl::StrCat("--config: \"", line.config, "\" sets \"", key,
                                                     "\" to ", value.dump(),
                                                     "; it can set values of ", FlagNames()));
    }
    if (line.gave(flag->name)) continue;
    line.texts[flag - Flags().begin()] = {
        value.is_string() ? value.get<std::string>() : value.dump(),
        absl::StrCat(" in \"", line.config, "\"")};
  }
  return absl::OkStatus();
}

absl::Status ReadFlags(const std::vector<CommandLine::Text>& texts, ServerOptions& options) {
  for (size_t i = 0; i < texts.size(); ++i) {
    const absl::Status status = Flags()[i].read(texts[i].value, options);
    if (status.ok()) continue;
    return absl::InvalidArgumentError(absl::StrCat("--", Flags()[i].name, "=\"", texts[i].value,
                                                   "\"", texts[i].where, ": ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t CpusOfQuota(std::string_view cpu_max) {
  std::istringstream text{std::string(cpu_max)};
  double quota = 0, period = 0;
  if (!(text >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return static_cast<uint32_t>(std::min((quota + period - 1) / period, 65536.0));
}

uint32_t UsableCpus() {
  const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  // Inside a container its own group is the root of what it sees.
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const uint32_t quota = CpusOfQuota(text);
  return quota == 0 ? cores : std::min(cores, quota);
}

bool IsLoopback(const std::string& host) {
  in_addr address;
  const bool ipv4 = inet_pton(AF_INET, host.c_str(), &address) == 1;
  return host == "localhost" || host == "::1" || (ipv4 && absl::StartsWith(host, "127."));
}

namespace {

absl::Status Unused(const char* flag, const std::string& text, const char* why) {
  return absl::InvalidArgumentError(absl::StrCat(flag, "=\"", text, "\": ", why));
}

// Flags that would do nothing, and one that is missing.
absl::Status CheckSpeculation(const ServerOptions& options) {
  const Speculation kind = options.speculate;
  if (!options.lookup_text.empty() && kind != Speculation::kLookup) {
    return Unused("--lookup-text", options.lookup_text,
                  "nothing is looked up: add --speculate=lookup");
  }
  if (!options.draft_model.empty() && kind != Speculation::kDraft) {
    return Unused("--draft-model", options.draft_model, "it drafts nothing: add --speculate=draft");
  }
  if (options.draft_tokens != kMostDraftTokens && kind == Speculation::kOff) {
    return Unused("--draft-tokens", absl::StrCat(options.draft_tokens),
                  "nothing is guessed: add --speculate=lookup, draft or mtp");
  }
  if (!options.draft_model.empty() || kind != Speculation::kDraft) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--speculate=draft: give the directory of a small model with --draft-model");
}

absl::Status CheckAddresses(const ServerOptions& options) {
  const HostPort &listen = options.listen, &http = options.http;
  if (http.port == 0 || listen.port != http.port || listen.host != http.host) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--http: --listen has the same address, with port ", http.port));
}

absl::Status CheckAccess(const ServerOptions& options) {
  const TlsPaths& tls = options.tls;
  if (tls.certificate.empty() != tls.key.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key: give both, or neither");
  }
  if (tls.certificate.empty() && !tls.client_ca.empty()) {
    return absl::InvalidArgumentError("--tls-client-ca: give --tls-cert and --tls-key, too");
  }
  if (!tls.certificate.empty() || options.insecure) return absl::OkStatus();
  for (const auto& [flag, address] :
       {std::pair("--listen", &options.listen), std::pair("--http", &options.http)}) {
    if (IsLoopback(address->host)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        flag, " ", address->host,
        ": other machines can connect there, and would send prompts and "
        "tokens in plain text: give --tls-cert and --tls-key, or say --insecure if something else "
        "protects the network"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ServerOptions> ParseOptions(const std::vector<std::string>& arguments) {
  CommandLine line;
  RIVULET_RETURN_IF_ERROR(Parse(line, arguments));
  ServerOptions options;
  options.show_help = line.help;
  options.show_version = line.version;
  if (line.help || line.version) return options;
  if (!line.config.empty()) RIVULET_RETURN_IF_ERROR(ApplyConfig(line));
  RIVULET_RETURN_IF_ERROR(ReadFlags(line.texts, options));
  RIVULET_RETURN_IF_ERROR(CheckAddresses(options));
  RIVULET_RETURN_IF_ERROR(CheckAccess(options));
  RIVULET_RETURN_IF_ERROR(CheckSpeculation(options));
  if (options.threads == 0) options.threads = UsableCpus();
  return options;
}

std::string OptionsHelp() { return CommandLine().app.help(); }

}  // namespace rivulet
