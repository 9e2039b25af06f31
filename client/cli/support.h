// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Shared by the commands: reading the prompt, printing errors and JSON lines.
#ifndef RIVULET_CLIENT_CLI_SUPPORT_H_
#define RIVULET_CLIENT_CLI_SUPPORT_H_

#include <google/protobuf/message.h>

#include <chrono>
#include <optional>
#include <string>

#include "client/cli/commands.h"

namespace rivulet::cli {

// Fills `request`'s input field from the options or from standard input, without one newline at its
// end (echo adds one). Fails if standard input cannot be read.
absl::Status FillInput(const InputOptions& options, v1::GenerateRequest& request);
absl::Status FillInput(const InputOptions& options, v1::ScoreRequest& request);

// None if the options have no timeout.
std::optional<std::chrono::milliseconds> Timeout(const CommonOptions& options);

CallOptions MakeCallOptions(const CommonOptions& options, Cancellation& cancellation);

// "NOT_FOUND: ...", with the time to wait before a retry if the server gave one.
std::string ErrorText(const absl::Status& status);

// Prints "error: NOT_FOUND: ..." on stderr and returns the exit code.
int Fail(const absl::Status& status);

// Prints one line of JSON on stdout, field names as in the proto. False if stdout is closed.
bool PrintJson(const google::protobuf::Message& message);

// Writes to stdout and flushes it. False if stdout is closed.
bool Print(const std::string& text);

// The same for text from a model: TerminalSafe if stdout is a terminal, otherwise byte for byte.
bool PrintModelText(const std::string& text);

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_SUPPORT_H_
