// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/cli/commands.h"
#include "client/cli/text.h"
#include "kernels/base/status.h"

namespace rivulet::cli {
namespace {

absl::StatusOr<std::string> ReadStandardInput() {
  if (isatty(STDIN_FILENO)) {
    std::cerr << "Type the prompt, then press ctrl-D on an empty line.\n";
  }
  std::string text((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  if (std::cin.bad()) return absl::DataLossError("standard input could not be read");
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

template <typename Request>
absl::Status FillInput(const InputOptions& options, Request& request) {
  request.set_special_tokens(options.special_tokens);
  if (!options.tokens.empty()) {
    request.mutable_token_ids()->mutable_ids()->Assign(options.tokens.begin(),
                                                       options.tokens.end());
  } else if (options.prompt) {
    request.set_prompt(*options.prompt);
  } else {
    RIVULET_ASSIGN_OR_RETURN(*request.mutable_prompt(), ReadStandardInput());
  }
  return absl::OkStatus();
}
template absl::Status FillInput(const InputOptions& options, v1::GenerateRequest& request);
template absl::Status FillInput(const InputOptions& options, v1::ScoreRequest& request);

std::optional<std::chrono::milliseconds> Timeout(const CommonOptions& options) {
  if (options.timeout_seconds <= 0) return std::nullopt;
  return std::chrono::milliseconds(static_cast<int64_t>(options.timeout_seconds * 1000.0));
}

CallOptions MakeCallOptions(const CommonOptions& options, Cancellation& cancellation) {
  return {.timeout = Timeout(options), .cancellation = &cancellation};
}

std::string CacheText(const v1::CacheReport& report) {
  if (report.miss() == v1::CACHE_MISS_UNSPECIFIED) {
    return absl::StrCat(Counted(report.reused_tokens(), "token"), " reused, ",
                        report.known_tokens(), " known");
  }
  constexpr const char* kWhy[] = {"",
                                  "the cache is off",
                                  "the session went on from its own state",
                                  "the prompt's log-probabilities were asked for",
                                  "the prompt is too short",
                                  "no prompt with this salt began so",
                                  "the state was not kept"};
  const auto why = static_cast<size_t>(report.miss());
  return absl::StrCat("nothing reused: ", why < std::size(kWhy) ? kWhy[why] : "another reason");
}

std::string LogprobLine(const v1::TokenLogprob& token) {
  const std::string text =
      absl::StrReplaceAll(token.text(), {{"\n", "\\n"}, {"\"", "\\\""}, {"\\", "\\\\"}});
  std::string line =
      absl::StrFormat("%10.5f  %7u  \"%s\"", token.logprob(), token.token_id(), text);
  for (const v1::TokenLogprob& other : token.top()) {
    absl::StrAppendFormat(&line, "  %u:%.5f", other.token_id(), other.logprob());
  }
  return line + "\n";
}

std::string ErrorText(const absl::Status& status) {
  std::string text(status.ToString(absl::StatusToStringMode::kWithNoExtraData));
  const auto wait = RetryAfter(status);
  if (wait) text += " (try again in " + std::to_string(wait->count()) + " ms)";
  return text;
}

int Fail(const absl::Status& status) {
  if (absl::IsCancelled(status)) {
    std::fputs("\ninterrupted\n", stderr);
    return 130;
  }
  std::fprintf(stderr, "error: %s\n", ErrorText(status).c_str());
  return 1;
}

int FailedOutput(int error) {
  if (error == EPIPE) return 0;
  return Fail(absl::ErrnoToStatus(error, "standard output"));
}

bool PrintJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions style;
  style.preserve_proto_field_names = true;
  std::string line;
  const auto status = google::protobuf::util::MessageToJsonString(message, &line, style);
  if (!status.ok()) {
    std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
    return false;
  }
  return Print(line + "\n");
}

bool Print(const std::string& text, FILE* file) {
  return std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
}

bool PrintModelText(const std::string& text) {
  return Print(isatty(STDOUT_FILENO) ? TerminalSafe(text) : text);
}

}  // namespace rivulet::cli
