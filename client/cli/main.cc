// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The command line of `rivulet`: its syntax, and nothing else. CLI11 is included here alone, since
// it costs eight seconds to compile.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/support.h"
#include "kernels/base/version.h"

namespace rivulet::cli {
namespace {

// Sets a field of the request when, and only when, the flag was given: an unset field takes the
// checkpoint's default.
template <typename T, typename Set>
void AddField(CLI::App* app, const char* name, const char* help, Set set) {
  app->add_option_function<T>(name, set, help);
}

void AddCommon(CLI::App* app, CommonOptions& options) {
  app->add_option("--server", options.server, "HOST:PORT of the server")
      ->envname("RIVULET_SERVER")
      ->capture_default_str();
  app->add_option("--timeout", options.timeout_seconds, "Give up after this many seconds");
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
  AddField<uint32_t>(app, "-m,--max-tokens", "At most this many tokens (256)",
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
  CLI11_PARSE(app, argc, argv);
  Cancellation cancellation;
  InterruptWatcher watcher(cancellation);
  if (generate_app->parsed()) return RunGenerate(generate, cancellation);
  if (score_app->parsed()) return RunScore(score, cancellation);
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
