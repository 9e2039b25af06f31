// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// `rivulet chat`: sends lines to the model and prints its text as it is generated. docs/chat.md is
// the user's guide.
#ifndef RIVULET_CLIENT_CLI_CHAT_CHAT_H_
#define RIVULET_CLIENT_CLI_CHAT_CHAT_H_

#include <optional>
#include <string>

#include "client/cli/chat/line_reader.h"
#include "client/cli/chat/screen.h"
#include "client/cli/commands.h"
#include "client/cli/signals.h"

namespace rivulet::cli {

struct ChatOptions {
  CommonOptions common;          // json is not used; the timeout applies to each call
  v1::GenerateRequest request;   // everything except input and session
  std::string session;           // id or name of the session to continue; empty: a new one
  std::string system;            // for models with a chat template
  std::optional<bool> thinking;  // passed to the template; none: as the template does by itself
};

// Sets the process's signal mask and locale, so no other thread may run yet. Returns 0 after /quit
// or the end of the input, 1 if the server cannot be used or a line from a pipe failed, 130 if
// interrupted without a terminal, 143 if terminated.
int RunChat(const ChatOptions& options);

// The same with a given server, input and output, for tests. If `interactive`, errors are printed
// and the next line is read.
int RunChat(const ChatOptions& options, bool interactive, SignalWatcher& signals,
            LineReader& reader, Screen& screen);

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_CHAT_CHAT_H_
