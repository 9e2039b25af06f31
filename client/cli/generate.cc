// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/text.h"
#include "kernels/base/status.h"

namespace rivulet::cli {
namespace {

using Clock = std::chrono::steady_clock;

// What --stats reports.
class Statistics {
 public:
  void Add(const v1::GenerateResponse& message) {
    if (message.seed() != 0) seed_ = message.seed();
    if (message.has_usage()) prompt_tokens_ = message.usage().prompt_tokens();
    if (message.token_ids_size() == 0) return;
    if (tokens_ == 0) first_ = Clock::now();
    tokens_ += static_cast<uint64_t>(message.token_ids_size());
  }

  // The rate excludes the first token, which waited for the prompt.
  void Print() const {
    const std::chrono::duration<double> waited = first_ - started_;
    const std::chrono::duration<double> decoding = Clock::now() - first_;
    const bool rated = tokens_ > 1 && decoding.count() > 0;
    absl::FPrintF(
        stderr, "%d prompt tokens, first token after %.3f s, %d tokens at %.1f tokens/s, seed %d\n",
        prompt_tokens_, tokens_ > 0 ? waited.count() : 0.0, tokens_,
        rated ? static_cast<double>(tokens_ - 1) / decoding.count() : 0.0, seed_);
  }

 private:
  const Clock::time_point started_ = Clock::now();
  Clock::time_point first_;
  uint64_t tokens_ = 0;
  uint64_t prompt_tokens_ = 0;
  uint64_t seed_ = 0;
};

// What --keep-choices and --report-cache ask for, on stderr at the end.
class Notes {
 public:
  void Add(const v1::GenerateResponse& message) {
    if (!message.fork_id().empty()) forks_[message.index()] = message.fork_id();
    if (message.has_cache()) cache_ = message.cache();
  }
  void Print() const {
    for (const auto& [index, id] : forks_) {
      absl::FPrintF(stderr, "completion %d: session %s\n", index, OneLine(id));
    }
    if (cache_.has_value()) absl::FPrintF(stderr, "prefix cache: %s\n", CacheText(*cache_));
  }

 private:
  std::map<uint32_t, std::string> forks_;
  std::optional<v1::CacheReport> cache_;
};

template <typename Ids>
std::string IdsText(const Ids& ids) {
  std::string text;
  for (const uint32_t id : ids) text += std::to_string(id) + " ";
  return text;
}

// Prints messages as they arrive; several completions are printed one after another at the end.
// With log-probabilities, a line for each token takes the place of the text.
class Printer {
 public:
  Printer(const v1::GenerateRequest& request, bool json, bool as_ids)
      : json_(json),
        as_ids_(as_ids),
        lines_(request.logprobs() > 0),
        prompt_lines_(request.prompt_logprobs() > 0),
        texts_(request.has_n() && request.n() > 0 ? request.n() : 1) {}

  // On the line of its continuation, if that follows. False if stdout is closed.
  bool Echo(const std::string& prompt) {
    const bool continued = !lines_ && !prompt_lines_ && texts_.size() == 1;
    return PrintModelText(continued ? prompt : prompt + "\n");
  }
  bool Add(const v1::GenerateResponse& message) {
    if (json_) return PrintJson(message);
    if (!PrintModelText(Lines(message.prompt_logprobs()))) return false;
    if (texts_.size() == 1) return PrintModelText(TextOf(message));
    if (message.index() < texts_.size()) texts_[message.index()] += TextOf(message);
    return true;
  }

  bool Finish() {
    if (json_) return true;
    const char* const end = lines_ ? "" : "\n";
    if (texts_.size() == 1) return Print(end);
    bool open = true;
    for (size_t i = 0; i < texts_.size() && open; ++i) {
      open = PrintModelText("--- completion " + std::to_string(i) + "\n" + texts_[i] + end);
    }
    return open;
  }

 private:
  template <typename Tokens>
  static std::string Lines(const Tokens& tokens) {
    std::string lines;
    for (const v1::TokenLogprob& token : tokens) lines += LogprobLine(token);
    return lines;
  }

  std::string TextOf(const v1::GenerateResponse& message) const {
    if (lines_) return Lines(message.logprobs());
    return as_ids_ ? IdsText(message.token_ids()) : message.text();
  }

  const bool json_;
  const bool as_ids_;
  const bool lines_, prompt_lines_;
  std::vector<std::string> texts_;
};

// A model without a tokenizer answers in ids. It is only asked about if the prompt is in ids.
absl::StatusOr<bool> AnswersInIds(Client& client, const InputOptions& input,
                                  const CallOptions& call) {
  if (input.tokens.empty()) return false;
  RIVULET_ASSIGN_OR_RETURN(const v1::Model model, client.GetModel(call));
  return !model.has_tokenizer();
}

// What --echo prints: the text of a prompt in ids, or the ids if the model has no tokenizer.
absl::StatusOr<std::string> PromptText(Client& client, const v1::GenerateRequest& request,
                                       bool as_ids, const CallOptions& call) {
  if (request.has_prompt()) return request.prompt();
  if (as_ids) return IdsText(request.token_ids().ids());
  v1::DetokenizeRequest ids;
  *ids.mutable_token_ids() = request.token_ids().ids();
  RIVULET_ASSIGN_OR_RETURN(const v1::DetokenizeResponse text, client.Detokenize(ids, call));
  return text.text();
}

}  // namespace

int RunGenerate(const GenerateOptions& options, Cancellation& cancellation) {
  v1::GenerateRequest request = options.request;
  if (absl::Status status = FillInput(options.input, request); !status.ok()) return Fail(status);
  Client client(options.common.server, options.common.access);
  const CallOptions call = MakeCallOptions(options.common, cancellation);
  const absl::StatusOr<bool> as_ids = AnswersInIds(client, options.input, call);
  if (!as_ids.ok()) return Fail(as_ids.status());
  Printer printer(request, options.common.json, *as_ids);
  const absl::StatusOr<std::string> prompt =
      options.echo ? PromptText(client, request, *as_ids, call) : "";
  if (!prompt.ok()) return Fail(prompt.status());
  if (options.echo && !printer.Echo(*prompt)) return FailedOutput(errno);
  Statistics statistics;
  Notes notes;
  int error = 0;
  const absl::Status status =
      client.Generate(request, call, [&](const v1::GenerateResponse& message) {
        statistics.Add(message);
        notes.Add(message);
        if (printer.Add(message)) return true;
        error = errno;
        return false;
      });
  if (error != 0) return FailedOutput(error);
  if (!status.ok()) return Fail(status);
  if (!printer.Finish()) return FailedOutput(errno);
  if (!options.common.json) notes.Print();
  if (options.stats) statistics.Print();
  return 0;
}

}  // namespace rivulet::cli
