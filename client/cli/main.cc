// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The command-line syntax of `rivulet`. Only this file includes CLI11, which takes eight seconds to
// compile.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/bench/options.h"
#include "client/cli/chat/chat.h"
#include "client/cli/commands.h"
#include "client/cli/sessions.h"
#include "client/cli/signals.h"
#include "kernels/base/numbers.h"
#include "kernels/base/version.h"

namespace rivulet::cli {
namespace {

// CLI11 has a different code for each mistake.
constexpr int kWrongUsage = 2;
constexpr int kInterrupted = 130;

// CLI11 alone reads 010 as eight and 0x10 as sixteen, and takes what no 64 bits hold for the
// largest number. What is wrong with the text, or nothing; then CLI11 can read it.
template <typename Number>
std::string CheckNumber(std::string& text) {
  const std::optional<Number> number = ReadNumber<Number>(text);
  if constexpr (std::is_integral_v<Number>) {
    if (number.has_value()) text = std::to_string(*number);
    if (number.has_value()) return "";
    return absl::StrCat("expected a whole number from 0 to ", std::numeric_limits<Number>::max(),
                        ", got \"", text, "\"");
  }
  return number.has_value() ? "" : absl::StrCat("expected a decimal number, got \"", text, "\"");
}

// T, or of what T is a list.
template <typename T>
struct Element {
  using Type = T;
};
template <typename T>
struct Element<std::vector<T>> {
  using Type = T;
};

// An option that calls `set` with its value.
template <typename T, typename Set>
CLI::Option* AddField(CLI::App* app, const char* name, const char* help, Set set) {
  CLI::Option* option = app->add_option_function<T>(name, set, help);
  using One = typename Element<T>::Type;
  if constexpr (std::is_arithmetic_v<One> && !std::is_same_v<One, bool>) {
    option->transform(CLI::Validator(CheckNumber<One>, ""));
  }
  return option;
}

// The same for a number or a list of them, which goes to `to`.
template <typename T>
CLI::Option* AddNumber(CLI::App* app, const char* name, const char* help, T& to) {
  return AddField<T>(app, name, help, [&to](const T& value) { to = value; });
}

// The same for a field of `message`: the server fills in unset fields.
template <typename Message, typename T>
void AddField(CLI::App* app, const char* name, const char* help, Message* message,
              void (Message::*set)(T)) {
  AddField<T>(app, name, help, [=](const T& value) { (message->*set)(value); });
}

// An empty text, as of a variable that a script has not set, would count as none.
CLI::Validator NotEmpty() {
  return CLI::Validator(
      [](std::string& text) { return text.empty() ? "it is empty; leave the option out" : ""; },
      "");
}

// The bytes of a file. CLI11 reports what callbacks throw as a usage error.
std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file || bytes.empty()) throw CLI::ValidationError("cannot read " + path);
  return bytes;
}

// The token is not an option: other users of the machine would see it in the list of processes.
void AddAccess(CLI::App* app, Access& access) {
  const auto file = [&](const char* name, const char* help, std::string& bytes) {
    const auto read = [&access, &bytes](const std::string& path) {
      bytes = BytesOf(path);
      access.tls = true;
    };
    return app->add_option_function<std::string>(name, read, help)->type_name("FILE");
  };
  app->add_flag("--tls", access.tls, "Speak TLS with the server");
  file("--tls-ca", "Who must have signed its certificate (PEM); implies --tls", access.authorities)
      ->envname("RIVULET_TLS_CA");
  CLI::Option* const certificate =
      file("--tls-cert", "The client's own certificate (PEM), for mutual TLS", access.certificate);
  CLI::Option* const key = file("--tls-key", "Its private key (PEM)", access.key);
  certificate->needs(key);
  key->needs(certificate);
  const auto read_token = [&access](const std::string& path) {
    access.token = BytesOf(path);
    while (!access.token.empty() && std::isspace(access.token.back())) access.token.pop_back();
    if (access.token.empty()) throw CLI::ValidationError("no token in " + path);
  };
  app->add_option_function<std::string>("--token-file", read_token,
                                        "A file with the bearer token, in place of $RIVULET_TOKEN")
      ->type_name("FILE");
  if (const char* const token = std::getenv("RIVULET_TOKEN")) access.token = token;
}

// Of a text that CheckNumber has let pass. Clocks hold no more.
std::string CheckSeconds(std::string& text) {
  const double seconds = ReadNumber<double>(text).value_or(-1);
  return seconds >= 0 && seconds <= 1e9 ? "" : "expected 0 to 1e9 seconds, got " + text;
}

void AddServer(CLI::App* app, CommonOptions& options) {
  app->add_option("--server", options.server, "HOST:PORT of the server")
      ->envname("RIVULET_SERVER")
      ->capture_default_str();
  AddAccess(app, options.access);
  AddNumber(app, "--timeout", "Give up after this many seconds (0: never)", options.timeout_seconds)
      ->check(CLI::Validator(CheckSeconds, ""));
}

void AddCommon(CLI::App* app, CommonOptions& options) {
  AddServer(app, options);
  app->add_flag("--json", options.json, "Print JSON, one object per line, fields as in the API");
}

void AddInput(CLI::App* app, InputOptions& options) {
  auto* prompt =
      app->add_option("-p,--prompt", options.prompt, "The text (default: standard input)");
  AddNumber(app, "--tokens", "The text as token ids, separated by commas", options.tokens)
      ->delimiter(',')
      ->excludes(prompt);
  app->add_flag("--special-tokens", options.special_tokens,
                "Special tokens written in the text (<|im_end|>) are those tokens");
}

// Here and below: options that would have no effect beside others are wrong usage.
void CheckInput(const InputOptions& options) {
  if (!options.special_tokens || options.tokens.empty()) return;
  throw CLI::ValidationError("--special-tokens",
                             "it counts for text; the ids of --tokens are used as they are");
}

// "ID=VALUE". CLI11 reports what callbacks throw as a usage error.
void AddBias(const std::string& entry, v1::SamplingParams* params) {
  const std::string_view text = entry;
  const size_t equals = std::min(text.find('='), text.size());
  const auto id = ReadNumber<uint32_t>(text.substr(0, equals));
  const auto value = ReadNumber<float>(text.substr(std::min(equals + 1, text.size())));
  if (!id.has_value() || !value.has_value()) {
    throw CLI::ValidationError("--logit-bias", "expected ID=VALUE in decimals, got " + entry);
  }
  if (!params->mutable_logit_bias()->insert({*id, *value}).second) {
    throw CLI::ValidationError("--logit-bias", absl::StrCat("token ", *id, " has two values"));
  }
}

void AddSampling(CLI::App* app, v1::SamplingParams* params) {
  using Params = v1::SamplingParams;
  AddField(app, "--temperature", "0 is greedy", params, &Params::set_temperature);
  AddField(app, "--top-k", "Keep only the k most likely tokens", params, &Params::set_top_k);
  AddField(app, "--top-p", "Keep the most likely tokens up to this total probability", params,
           &Params::set_top_p);
  AddField(app, "--min-p", "Keep tokens at least this likely, relative to the most likely", params,
           &Params::set_min_p);
  AddField(app, "--repetition-penalty", "Penalty on all tokens so far", params,
           &Params::set_repetition_penalty);
  AddField(app, "--frequency-penalty", "Penalty on generated tokens, per occurrence", params,
           &Params::set_frequency_penalty);
  AddField(app, "--presence-penalty", "Penalty on tokens that were generated", params,
           &Params::set_presence_penalty);
  AddField(app, "--seed", "Same seed, same text", params, &Params::set_seed);
  AddField<std::vector<std::string>>(app, "--logit-bias", "ID=VALUE, added to a logit; repeatable",
                                     [=](const std::vector<std::string>& entries) {
                                       for (const auto& entry : entries) AddBias(entry, params);
                                     });
}

void AddStops(CLI::App* app, v1::StopParams* stop) {
  AddField<std::vector<std::string>>(app, "--stop", "Stop before this text; repeatable",
                                     [=](const std::vector<std::string>& strings) {
                                       stop->mutable_strings()->Add(strings.begin(), strings.end());
                                     });
  AddField<std::vector<uint32_t>>(app, "--stop-id", "Stop at this token id; repeatable",
                                  [=](const std::vector<uint32_t>& ids) {
                                    stop->mutable_token_ids()->Add(ids.begin(), ids.end());
                                  });
  app->add_flag_callback(
      "--ignore-eos", [=] { stop->set_ignore_eos(true); }, "Continue after EOS");
  app->add_flag_callback(
      "--include-stop", [=] { stop->set_include_stop(true); }, "Print the stop text, too");
  AddField(app, "--min-tokens", "Do not stop before this many tokens", stop,
           &v1::StopParams::set_min_tokens);
}

void AddCache(CLI::App* app, v1::GenerateRequest* request) {
  AddField<std::string>(app, "--cache-salt", "Share kept states only with prompts of this salt",
                        [=](const std::string& salt) { request->set_cache_salt(salt); })
      ->check(NotEmpty());
  app->add_flag_callback(
      "--report-cache", [=] { request->set_report_cache(true); },
      "Print what the server's prefix cache had, or why nothing");
}

// An option that names a file, whose bytes `set` takes.
CLI::Option* AddFile(CLI::App* app, const char* name, const char* help,
                     std::function<void(std::string)> set) {
  const auto read = [set = std::move(set)](const std::string& path) { set(BytesOf(path)); };
  return AddField<std::string>(app, name, help, read)->check(CLI::ExistingFile);
}

void AddStructure(CLI::App* app, v1::GenerateRequest* request) {
  const auto structure = [=] { return request->mutable_structured_output(); };
  const std::vector<CLI::Option*> kinds = {
      AddFile(app, "--json-schema", "Generate JSON that the schema in this file accepts",
              [=](std::string text) { structure()->set_json_schema(std::move(text)); }),
      AddFile(app, "--grammar", "Generate a text of the grammar in this file (EBNF, rule root)",
              [=](std::string text) { structure()->set_grammar(std::move(text)); }),
      app->add_flag_callback(
          "--json-object", [=] { structure()->set_json_object(true); }, "Generate a JSON object"),
      AddField<std::string>(app, "--regex", "Generate a text that this matches as a whole",
                            [=](const std::string& regex) { structure()->set_regex(regex); }),
      AddField<std::vector<std::string>>(app, "--choice", "Generate one of these texts; repeatable",
                                         [=](const std::vector<std::string>& choices) {
                                           auto* const strings =
                                               structure()->mutable_choices()->mutable_strings();
                                           strings->Add(choices.begin(), choices.end());
                                         })};
  for (CLI::Option* one : kinds) {
    for (CLI::Option* other : kinds) {
      if (one != other) one->excludes(other);
    }
  }
}

void CheckGenerate(const GenerateOptions& options) {
  CheckInput(options.input);
  if (!options.echo || !options.common.json) return;
  throw CLI::ValidationError("--echo",
                             "--json prints the server's messages as they are, and these do not "
                             "have the prompt; --prompt-logprobs asks for its tokens");
}

void AddGenerate(CLI::App* app, GenerateOptions& options) {
  app->callback([&options] { CheckGenerate(options); });
  AddCommon(app, options.common);
  AddInput(app, options.input);
  using Request = v1::GenerateRequest;
  Request* request = &options.request;
  AddField<std::string>(app, "--session", "Continue this session (rivulet sessions create)",
                        [=](const std::string& v) { request->set_session_id(v); })
      ->check(NotEmpty());
  AddField(app, "-m,--max-tokens", "Most tokens to generate (default: the model's, or 256)",
           request, &Request::set_max_tokens);
  CLI::Option* const completions =
      AddField<uint32_t>(app, "-n,--completions", "Independent completions of one prompt",
                         [=](uint32_t n) { request->set_n(n); });
  app->add_flag_callback(
         "--keep-choices", [=] { request->set_keep_choices(true); },
         "With --session and -n: the other completions become sessions, too")
      ->needs(completions);
  AddField(app, "--logprobs",
           "Log-probabilities of the n best tokens: a line for each token in place of the text",
           request, &Request::set_logprobs);
  AddField(app, "--prompt-logprobs", "The same for the prompt's tokens, before the rest", request,
           &Request::set_prompt_logprobs);
  AddSampling(app, request->mutable_sampling());
  AddStops(app, request->mutable_stop());
  AddCache(app, request);
  AddStructure(app, request);
  app->add_flag("--echo", options.echo,
                "Print the prompt before its continuation; not with --json");
  app->add_flag("--stats", options.stats, "Print tokens/s on stderr at the end");
}

void AddScore(CLI::App* app, ScoreOptions& options) {
  AddCommon(app, options.common);
  AddInput(app, options.input);
  app->callback([&options] { CheckInput(options.input); });
  AddNumber(app, "--top", "Also print the n best tokens at each position, at most 20", options.top);
}

// An option whose text `parse` turns into `value`.
template <typename Value, typename T>
CLI::Option* AddParsed(CLI::App* app, const char* name, const char* help,
                       absl::StatusOr<T> (*parse)(std::string_view), Value* value) {
  return AddField<std::string>(app, name, help, [=](const std::string& text) {
    const absl::StatusOr<T> parsed = parse(text);
    if (!parsed.ok()) throw CLI::ValidationError(name, std::string(parsed.status().message()));
    *value = *parsed;
  });
}

void AddBenchLoad(CLI::App* app, bench::BenchOptions& o) {
  CLI::Option* concurrency = AddNumber(
      app, "-c,--concurrency", "Closed loop: this many streams, always busy (1)", o.concurrency);
  CLI::Option* const rate =
      AddNumber(app, "-r,--rate", "Open loop: requests/s, regardless of the server", o.rate)
          ->excludes(concurrency);
  AddParsed(app, "--arrival", "Arrivals of the open loop: poisson or constant (poisson)",
            bench::ParseArrival, &o.arrival)
      ->needs(rate);
  AddNumber(app, "-n,--requests", "Stop after this many requests (or sessions)", o.requests);
  AddNumber(app, "-d,--duration", "Measured seconds (10 without --requests)", o.duration_seconds);
  AddNumber(app, "--warmup", "Seconds of load before measuring (0)", o.warmup_seconds);
  AddNumber(app, "--drain", "Seconds for running requests to finish at the end (30)",
            o.drain_seconds);
  AddNumber(app, "--connections", "TCP connections, used in turn (1)", o.connections);
  AddNumber(app, "--max-in-flight", "Open loop: most requests in flight (10000)", o.max_in_flight)
      ->needs(rate);
  AddNumber(app, "--interfere-prompt",
            "Measure twice --duration: without, and with a prompt of this many tokens always "
            "being processed; compares inter-token latencies",
            o.interfere_prompt);
  AddNumber(app, "--slo-ttft-ms", "Goodput: limit for the first token", o.slo_ttft_ms);
  AddNumber(app, "--slo-itl-ms", "Goodput: limit for 99 % of the other tokens", o.slo_itl_ms);
}

void AddBench(CLI::App* app, bench::BenchOptions& o) {
  AddCommon(app, o.common);
  AddBenchLoad(app, o);
  CLI::Option* const lengths =
      AddParsed(app, "--prompt-tokens", "Random ids: N, or uniform LOW:HIGH (128)",
                bench::ParseLengthRange, &o.prompt_tokens);
  AddParsed(app, "--output-tokens", "N, or uniform LOW:HIGH (128)", bench::ParseLengthRange,
            &o.output_tokens);
  app->add_option("--prompt-file", o.prompt_file, "Read prompts from this file, one per line")
      ->excludes(lengths)
      ->check(NotEmpty());
  AddField<float>(app, "--temperature", "0 is greedy", [&o](float v) { o.temperature = v; });
  AddNumber(app, "--seed", "Same seed, same requests at the same times (1)", o.seed);
  AddNumber(app, "--turns", "Sessions of this many turns, instead of single requests", o.turns);
}

void AddChat(CLI::App* app, ChatOptions& options) {
  AddServer(app, options.common);
  app->add_option("--session", options.session, "Continue the session with this id or name")
      ->check(NotEmpty());
  app->add_option("--system", options.system, "System message, for models with a chat template");
  AddField<bool>(app, "--thinking", "on or off, for chat templates that know it (the template's)",
                 [&options](bool on) { options.thinking = on; });
  v1::GenerateRequest* request = &options.request;
  app->add_flag_callback(
      "--special-tokens", [request] { request->set_special_tokens(true); },
      "Special tokens written in your lines (<|im_end|>) are those tokens");
  AddField(app, "-m,--max-tokens", "Most tokens of an answer (default: the model's, or 256)",
           request, &v1::GenerateRequest::set_max_tokens);
  AddSampling(app, request->mutable_sampling());
  AddStops(app, request->mutable_stop());
  AddCache(app, request);
}

CLI::App* AddSessionsAction(CLI::App* app, const char* name, const char* help,
                            SessionsAction action, SessionsOptions& options) {
  CLI::App* added = app->add_subcommand(name, help)->fallthrough();
  added->callback([&options, action] { options.action = action; });
  return added;
}

void AddRename(CLI::App* app, SessionsOptions& options) {
  CLI::App* rename =
      AddSessionsAction(app, "rename", "Rename a session", SessionsAction::kRename, options);
  v1::UpdateSessionRequest* request = &options.update;
  AddField<std::string>(rename, "id", "Its id, the start of it, or its name",
                        [=](const std::string& id) { request->set_id(id); })
      ->required();
  AddField<std::string>(rename, "name", "The new name; an empty one removes it",
                        [=](const std::string& name) { request->set_name(name); })
      ->required();
}

void AddFork(CLI::App* app, SessionsOptions& options) {
  CLI::App* fork = AddSessionsAction(app, "fork", "Make a session that continues from another one",
                                     SessionsAction::kFork, options);
  v1::ForkSessionRequest* request = &options.fork;
  AddField<std::string>(fork, "id", "Its id, the start of it, or its name",
                        [=](const std::string& id) { request->set_id(id); })
      ->required();
  AddField<std::string>(fork, "--id", "The new id (default: chosen by the server)",
                        [=](const std::string& id) { request->set_new_id(id); })
      ->check(NotEmpty());
  AddField<std::string>(fork, "--name", "The new name",
                        [=](const std::string& name) { request->set_name(name); });
  AddField<uint64_t>(fork, "--position", "How many of its tokens to take (default: all)",
                     [=](uint64_t position) { request->set_position(position); });
}

void AddRewind(CLI::App* app, SessionsOptions& options) {
  CLI::App* rewind = AddSessionsAction(app, "rewind", "Take a session back to a position",
                                       SessionsAction::kRewind, options);
  v1::RewindSessionRequest* request = &options.rewind;
  AddField<std::string>(rewind, "id", "Its id or name", [=](const std::string& id) {
    request->set_id(id);
  })->required();
  AddField<uint64_t>(rewind, "position", "How many tokens it keeps", [=](uint64_t position) {
    request->set_position(position);
  })->required();
}

void AddSessions(CLI::App* app, SessionsOptions& options) {
  AddCommon(app, options.common);
  app->require_subcommand(0, 1);
  AddSessionsAction(app, "list", "List all sessions (the default)", SessionsAction::kList, options);
  AddSessionsAction(app, "get", "Show one session", SessionsAction::kGet, options)
      ->add_option("id", options.ids, "Its id, the start of it, or its name")
      ->required()
      ->expected(1);
  CLI::App* create = AddSessionsAction(app, "create", "Create an empty session and print its id",
                                       SessionsAction::kCreate, options);
  v1::CreateSessionRequest* request = &options.create;
  AddField<std::string>(create, "--id", "The id (default: chosen by the server)",
                        [=](const std::string& id) { request->set_id(id); })
      ->check(NotEmpty());
  AddField<std::string>(create, "--name", "The name",
                        [=](const std::string& name) { request->set_name(name); });
  AddRename(app, options);
  AddFork(app, options);
  AddRewind(app, options);
  AddSessionsAction(app, "tree", "Show which sessions were forked from which",
                    SessionsAction::kTree, options);
  AddSessionsAction(app, "delete", "Delete sessions and their state", SessionsAction::kDelete,
                    options)
      ->add_option("id", options.ids, "Their ids or names")
      ->required();
}

int Main(int argc, char** argv) {
  GOOGLE_PROTOBUF_VERIFY_VERSION;
  CLI::App app("Talks to a Rivulet server.", "rivulet");
  app.set_version_flag("--version",
                       "rivulet " + std::string(Version()) + " (" + std::string(Commit()) + ")");
  app.require_subcommand(1);
  GenerateOptions generate;
  ScoreOptions score;
  CommonOptions model;
  bench::BenchOptions bench;
  bench.client_version = std::string(Version()) + " (" + std::string(Commit()) + ")";
  ChatOptions chat;
  SessionsOptions sessions;
  const auto add = [&app](const char* name, const char* help, auto add_options, auto& options) {
    CLI::App* added = app.add_subcommand(name, help);
    add_options(added, options);
    return added;
  };
  const CLI::App* generate_app =
      add("generate", "Continue a text and stream the result", AddGenerate, generate);
  const CLI::App* score_app =
      add("score", "Print the log-probability of each token of a text", AddScore, score);
  add("model", "Describe the model that the server serves", AddCommon, model);
  const CLI::App* bench_app = add("bench", "Put load on a server and measure it", AddBench, bench);
  const CLI::App* chat_app = add("chat", "Talk with the model", AddChat, chat);
  const CLI::App* sessions_app =
      add("sessions", "Manage the sessions that the server keeps", AddSessions, sessions);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // also for --help and --version
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  if (chat_app->parsed()) return RunChat(chat);  // handles signals itself
  Cancellation cancellation;
  SignalWatcher signals;
  const SignalWatcher::DuringCall during(signals, [&](int times, bool) {
    if (times > 1) _exit(kInterrupted);
    cancellation.Cancel();
  });
  if (generate_app->parsed()) return RunGenerate(generate, cancellation);
  if (score_app->parsed()) return RunScore(score, cancellation);
  if (sessions_app->parsed()) return RunSessions(sessions, cancellation);
  if (bench_app->parsed()) return bench::RunBench(bench, cancellation);
  return RunModel(model, cancellation);
}

}  // namespace
}  // namespace rivulet::cli

// Main turns CLI11's exceptions for wrong usage into messages. Others are a lack of memory and bugs
// in the syntax above.
int main(int argc, char** argv) {
  try {
    return rivulet::cli::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rivulet: %s\n", error.what());
    return 1;
  }
}
