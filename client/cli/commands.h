// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The commands of `rivulet` without their command-line syntax, which main.cc has. Each takes plain
// options, writes results to stdout and errors to stderr, and returns the process's exit code:
// 0 done, 1 the call failed, 130 interrupted. main.cc returns 2 for wrong usage.
//
// Also what the commands share: reading the prompt, printing errors, text and JSON lines.
#ifndef RIVULET_CLIENT_CLI_COMMANDS_H_
#define RIVULET_CLIENT_CLI_COMMANDS_H_

#include <google/protobuf/message.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "client/client.h"
#include "rivulet/v1/inference.pb.h"

namespace rivulet::cli {

// Options of every command.
struct CommonOptions {
  std::string server = "localhost:8590";
  Access access = {};
  double timeout_seconds = 0;  // 0: none
  bool json = false;           // one JSON object per line, field names as in the proto
};

// The prompt: --tokens if given, else --prompt if given, else standard input.
struct InputOptions {
  std::optional<std::string> prompt;
  std::vector<uint32_t> tokens;
  bool special_tokens = false;  // those written in the text count
};

struct GenerateOptions {
  CommonOptions common;
  InputOptions input;
  v1::GenerateRequest request;  // everything except the input
  bool echo = false;            // print the prompt before its continuation; not with json
  bool stats = false;           // tokens and tokens/s on stderr at the end
};

struct ScoreOptions {
  CommonOptions common;
  InputOptions input;
  uint32_t top = 0;
};

int RunGenerate(const GenerateOptions& options, Cancellation& cancellation);
int RunScore(const ScoreOptions& options, Cancellation& cancellation);
int RunModel(const CommonOptions& options, Cancellation& cancellation);

// Fills `request`'s input field from the options or from standard input, without one newline at its
// end (echo adds one). Fails if standard input cannot be read.
// Request is v1::GenerateRequest or v1::ScoreRequest.
template <typename Request>
absl::Status FillInput(const InputOptions& options, Request& request);

// None if the options have no timeout.
std::optional<std::chrono::milliseconds> Timeout(const CommonOptions& options);

CallOptions MakeCallOptions(const CommonOptions& options, Cancellation& cancellation);

// "96 tokens reused, 112 known", or "nothing reused: " and why.
std::string CacheText(const v1::CacheReport& report);

// A token's log-probability, id and text, and the best tokens at its place, with a newline.
std::string LogprobLine(const v1::TokenLogprob& token);

// "NOT_FOUND: ...", with the time to wait before a retry if the server gave one.
std::string ErrorText(const absl::Status& status);

// Prints "error: NOT_FOUND: ..." on stderr and returns the exit code.
int Fail(const absl::Status& status);

// The exit code after Print has failed with `error`, an errno: 0 if the reader of a pipe has left,
// since it had what it wanted. Otherwise, as for a full disk, prints the error.
int FailedOutput(int error);

// Prints one line of JSON on stdout, field names as in the proto. False if stdout is closed.
bool PrintJson(const google::protobuf::Message& message);

// Writes to a file and flushes it. False if it is closed.
bool Print(const std::string& text, FILE* file = stdout);

// The same for text from a model: TerminalSafe if stdout is a terminal, otherwise byte for byte.
bool PrintModelText(const std::string& text);

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_COMMANDS_H_
