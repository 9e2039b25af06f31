// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the commands share: reading the prompt, printing errors and JSON lines, watching for ctrl-C.
#ifndef RIVULET_CLIENT_CLI_SUPPORT_H_
#define RIVULET_CLIENT_CLI_SUPPORT_H_

#include <google/protobuf/message.h>

#include <string>
#include <thread>

#include "client/cli/commands.h"

namespace rivulet::cli {

// Fills `request`'s input field (GenerateRequest or ScoreRequest) from the options or from standard
// input, of which one newline at the end is dropped (echo adds it). Fails if standard input fails.
absl::Status FillInput(const InputOptions& options, v1::GenerateRequest& request);
absl::Status FillInput(const InputOptions& options, v1::ScoreRequest& request);

CallOptions MakeCallOptions(const CommonOptions& options, Cancellation& cancellation);

// "NOT_FOUND: ...", with when to try again if the server said so.
std::string ErrorText(const absl::Status& status);

// "error: NOT_FOUND: ..." on stderr; returns the exit code for it.
int Fail(const absl::Status& status);

// One line of JSON on stdout, field names as in the proto. False once nobody reads stdout.
bool PrintJson(const google::protobuf::Message& message);

// Writes to stdout at once. False once nobody reads stdout.
bool Print(const std::string& text);

// The same for what a model wrote: TerminalSafe where stdout is a terminal, else byte for byte.
bool PrintModelText(const std::string& text);

// Cancels on SIGINT or SIGTERM while it lives: the first ends the call, a second ends the program.
// Make it before any other thread, so that all of them leave the signals to it.
class InterruptWatcher {
 public:
  explicit InterruptWatcher(Cancellation& cancellation);
  ~InterruptWatcher();
  InterruptWatcher(const InterruptWatcher&) = delete;
  InterruptWatcher& operator=(const InterruptWatcher&) = delete;

 private:
  void Watch();

  Cancellation& cancellation_;
  std::thread thread_;
};

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_SUPPORT_H_
