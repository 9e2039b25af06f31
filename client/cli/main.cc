// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The command line of `rivulet`: its syntax, and nothing else. CLI11 is included here alone, since
// it costs eight seconds to compile.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "client/cli/bench/bench.h"
#include "client/cli/chat/chat.h"
#include "client/cli/commands.h"
#include "client/cli/sessions.h"
#include "client/cli/support.h"
#include "kernels/base/version.h"

namespace rivulet::cli {
namespace {

// CLI11 has a code of its own for each mistake.
constexpr int kWrongUsage = 2;

// Sets a field of the request when, and only when, the flag was given: an unset field takes the
// checkpoint's default.
template <typename T, typename Set>
void AddField(CLI::App* app, const char* name, const char* help, Set set) {
  app->add_option_function<T>(name, set, help);
}

void AddServer(CLI::App* app, CommonOptions& options) {
  app->add_option("--server", options.server, "HOST:PORT of the server")
      ->envname("RIVULET_SERVER")
      ->capture_default_str();
  app->add_option("--timeout", options.timeout_seconds, "Give up after this many seconds");
}

void AddCommon(CLI::App* app, CommonOptions& options) {
  AddServer(app, options);
  app->add_flag("--json", options.json, "Print JSON, one object a line, fields as in the API");
}

void AddInput(CLI::App* app, InputOptions& options) {
  auto* prompt =
      app->add_option("-p,--prompt", options.prompt, "The text; standard input if not given");
  app->add_option("--tokens", options.tokens, "The text as token ids, separated by commas")
      ->delimiter(',')
      ->excludes(prompt);
}

// "ID=VALUE". CLI11 reports what callbacks throw as a usage error.
void AddBias(const std::string& entry, v1::SamplingParams* params) {
  uint32_t id = 0;
  float value = 0;
  const size_t equals = entry.find('=');
  if (equals == std::string::npos || !CLI::detail::lexical_cast(entry.substr(0, equals), id) ||
      !CLI::detail::lexical_cast(entry.substr(equals + 1), value)) {
    throw CLI::ValidationError("--logit-bias", "expected ID=VALUE, got " + entry);
  }
  (*params->mutable_logit_bias())[id] = value;
}

void AddSampling(CLI::App* app, v1::SamplingParams* params) {
  AddField<float>(app, "--temperature", "0 is greedy",
                  [=](float v) { params->set_temperature(v); });
  AddField<uint32_t>(app, "--top-k", "Only the k likeliest tokens",
                     [=](uint32_t v) { params->set_top_k(v); });
  AddField<float>(app, "--top-p", "Only the likeliest tokens that make up this probability",
                  [=](float v) { params->set_top_p(v); });
  AddField<float>(app, "--min-p", "Only tokens at least this likely, relative to the likeliest",
                  [=](float v) { params->set_min_p(v); });
  AddField<float>(app, "--repetition-penalty", "Over all tokens so far",
                  [=](float v) { params->set_repetition_penalty(v); });
  AddField<float>(app, "--frequency-penalty", "Over the tokens generated",
                  [=](float v) { params->set_frequency_penalty(v); });
  AddField<float>(app, "--presence-penalty", "Over the tokens generated",
                  [=](float v) { params->set_presence_penalty(v); });
  AddField<uint64_t>(app, "--seed", "Same seed, same text",
                     [=](uint64_t v) { params->set_seed(v); });
  AddField<std::vector<std::string>>(app, "--logit-bias", "ID=VALUE, added to a logit; repeatable",
                                     [=](const std::vector<std::string>& entries) {
                                       for (const auto& entry : entries) AddBias(entry, params);
                                     });
}

void AddStops(CLI::App* app, v1::StopParams* stop) {
  AddField<std::vector<std::string>>(app, "--stop", "End before this text; may be repeated",
                                     [=](const std::vector<std::string>& strings) {
                                       for (const auto& s : strings) stop->add_strings(s);
                                     });
  AddField<std::vector<uint32_t>>(app, "--stop-id", "End at this token id; may be repeated",
                                  [=](const std::vector<uint32_t>& ids) {
                                    for (uint32_t id : ids) stop->add_token_ids(id);
                                  });
  app->add_flag_callback(
      "--ignore-eos", [=] { stop->set_ignore_eos(true); }, "Go on after EOS");
  app->add_flag_callback(
      "--include-stop", [=] { stop->set_include_stop(true); }, "Print the stop text too");
  AddField<uint32_t>(app, "--min-tokens", "No stop before this many tokens",
                     [=](uint32_t v) { stop->set_min_tokens(v); });
}

void AddGenerate(CLI::App* app, GenerateOptions& options) {
  AddCommon(app, options.common);
  AddInput(app, options.input);
  v1::GenerateRequest* request = &options.request;
  AddField<std::string>(app, "--session", "Go on in this session (rivulet sessions create)",
                        [=](const std::string& v) { request->set_session_id(v); });
  AddField<uint32_t>(app, "-m,--max-tokens",
                     "At most this many tokens (if the model does not say: 256)",
                     [=](uint32_t v) { request->set_max_tokens(v); });
  AddField<uint32_t>(app, "-n,--completions", "Independent completions of one prompt",
                     [=](uint32_t v) { request->set_n(v); });
  AddField<uint32_t>(app, "--logprobs", "Log-probabilities of the n best; seen with --json",
                     [=](uint32_t v) { request->set_logprobs(v); });
  AddField<uint32_t>(app, "--prompt-logprobs", "The same for the prompt; seen with --json",
                     [=](uint32_t v) { request->set_prompt_logprobs(v); });
  AddSampling(app, request->mutable_sampling());
  AddStops(app, request->mutable_stop());
  app->add_flag("--echo", options.echo, "Print the prompt before its continuation");
  app->add_flag("--stats", options.stats, "Report tokens/s on stderr at the end");
}

// Sets `value` from a flag whose text `parse` understands.
template <typename Value, typename T>
void AddParsed(CLI::App* app, const char* name, const char* help,
               absl::StatusOr<T> (*parse)(std::string_view), Value* value) {
  AddField<std::string>(app, name, help, [=](const std::string& text) {
    const absl::StatusOr<T> parsed = parse(text);
    if (!parsed.ok()) throw CLI::ValidationError(name, std::string(parsed.status().message()));
    *value = *parsed;
  });
}

void AddBenchLoad(CLI::App* app, bench::BenchOptions& o) {
  auto* concurrency = app->add_option("-c,--concurrency", o.concurrency,
                                      "Closed loop: this many streams, always busy (1)");
  app->add_option("-r,--rate", o.rate, "Open loop: requests/s, whatever the server does")
      ->excludes(concurrency);
  AddParsed(app, "--arrival", "Of the open loop: poisson or constant (poisson)",
            bench::ParseArrival, &o.arrival);
  app->add_option("-n,--requests", o.requests, "End after this many requests (or sessions)");
  app->add_option("-d,--duration", o.duration_seconds, "Seconds measured (10 without --requests)");
  app->add_option("--warmup", o.warmup_seconds, "Seconds of load before measuring (0)");
  app->add_option("--drain", o.drain_seconds, "Seconds for what runs at the end (30)");
  app->add_option("--connections", o.connections, "TCP connections, used in turn (1)");
  app->add_option("--max-in-flight", o.max_in_flight, "Open loop: send no more at once (10000)");
  app->add_option("--interfere-prompt", o.interfere_prompt,
                  "Measure twice --duration: without, and with a prompt of this many tokens always "
                  "being processed; compares inter-token latencies");
  app->add_option("--slo-ttft-ms", o.slo_ttft_ms, "Goodput: first token within this");
  app->add_option("--slo-itl-ms", o.slo_itl_ms, "Goodput: 99 % of the tokens within this");
}

void AddBench(CLI::App* app, bench::BenchOptions& o) {
  AddCommon(app, o.common);
  AddBenchLoad(app, o);
  AddParsed(app, "--prompt-tokens", "Random ids: N, or uniform LOW:HIGH (128)",
            bench::ParseLengthRange, &o.prompt_tokens);
  AddParsed(app, "--output-tokens", "N, or uniform LOW:HIGH (128)", bench::ParseLengthRange,
            &o.output_tokens);
  app->add_option("--prompt-file", o.prompt_file, "Prompts from here, one a line");
  AddField<float>(app, "--temperature", "0 is greedy", [&o](float v) { o.temperature = v; });
  app->add_option("--seed", o.seed, "Same seed, same requests at the same times (1)");
  app->add_option("--turns", o.turns, "Sessions of this many turns instead of single requests");
}

void AddChat(CLI::App* app, ChatOptions& options) {
  AddServer(app, options.common);
  app->add_option("--session", options.session, "Go on with the session of this id or name");
  app->add_option(
      "--system", options.system,
      "What the model shall be; needs a server that applies its chat template (not yet)");
  v1::GenerateRequest* request = &options.request;
  AddField<uint32_t>(app, "-m,--max-tokens",
                     "At most this many tokens an answer (if the model does not say: 256)",
                     [=](uint32_t v) { request->set_max_tokens(v); });
  AddSampling(app, request->mutable_sampling());
  AddStops(app, request->mutable_stop());
}

CLI::App* AddSessionsAction(CLI::App* app, const char* name, const char* help,
                            SessionsAction action, SessionsOptions& options) {
  CLI::App* added = app->add_subcommand(name, help)->fallthrough();
  added->callback([&options, action] { options.action = action; });
  return added;
}

void AddRename(CLI::App* app, SessionsOptions& options) {
  CLI::App* rename =
      AddSessionsAction(app, "rename", "Give one another name", SessionsAction::kRename, options);
  v1::UpdateSessionRequest* request = &options.update;
  rename
      ->add_option_function<std::string>(
          "id", [=](const std::string& id) { request->set_id(id); },
          "Its id, the start of it, or its name")
      ->required();
  rename
      ->add_option_function<std::string>(
          "name", [=](const std::string& name) { request->set_name(name); },
          "The name; an empty one takes it away")
      ->required();
}

void AddSessions(CLI::App* app, SessionsOptions& options) {
  AddCommon(app, options.common);
  app->require_subcommand(0, 1);
  AddSessionsAction(app, "list", "All of them; the same as no word", SessionsAction::kList,
                    options);
  AddSessionsAction(app, "get", "One of them", SessionsAction::kGet, options)
      ->add_option("id", options.ids, "Its id, the start of it, or its name")
      ->required()
      ->expected(1);
  CLI::App* create = AddSessionsAction(app, "create", "Make an empty one and print its id",
                                       SessionsAction::kCreate, options);
  v1::CreateSessionRequest* request = &options.create;
  AddField<std::string>(create, "--id", "Its id; made up if not given",
                        [=](const std::string& id) { request->set_id(id); });
  AddField<std::string>(create, "--name", "A name for people to read",
                        [=](const std::string& name) { request->set_name(name); });
  AddRename(app, options);
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
  CLI::App* generate_app = app.add_subcommand("generate", "Continue a text, streaming");
  AddGenerate(generate_app, generate);
  CLI::App* score_app = app.add_subcommand("score", "Log-probability of each token of a text");
  AddCommon(score_app, score.common);
  AddInput(score_app, score.input);
  score_app->add_option("--top", score.top, "Also the n best at each place, at most 20");
  CLI::App* model_app = app.add_subcommand("model", "What the server serves");
  AddCommon(model_app, model);
  bench::BenchOptions bench;
  bench.client_version = std::string(Version()) + " (" + std::string(Commit()) + ")";
  CLI::App* bench_app = app.add_subcommand("bench", "Put load on a server and measure it");
  AddBench(bench_app, bench);
  ChatOptions chat;
  CLI::App* chat_app = app.add_subcommand("chat", "Talk with the model, or tell a tale with it");
  AddChat(chat_app, chat);
  SessionsOptions sessions;
  CLI::App* sessions_app = app.add_subcommand("sessions", "What the server keeps between turns");
  AddSessions(sessions_app, sessions);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // --help and --version too, which are no error
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  if (chat_app->parsed()) return RunChat(chat);  // it takes the signals itself
  Cancellation cancellation;
  InterruptWatcher watcher(cancellation);
  if (generate_app->parsed()) return RunGenerate(generate, cancellation);
  if (score_app->parsed()) return RunScore(score, cancellation);
  if (sessions_app->parsed()) return RunSessions(sessions, cancellation);
  if (bench_app->parsed()) return bench::RunBench(bench, cancellation);
  return RunModel(model, cancellation);
}

}  // namespace
}  // namespace rivulet::cli

// CLI11 reports wrong usage by exceptions, which Main turns into messages; what is left is memory
// and our own mistakes in the syntax above.
int main(int argc, char** argv) {
  try {
    return rivulet::cli::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rivulet: %s\n", error.what());
    return 1;
  }
}
