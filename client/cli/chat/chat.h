// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// `rivulet chat`: lines go to the model, its text comes back as it is made. docs/chat.md is for its
// users.
#ifndef RIVULET_CLIENT_CLI_CHAT_CHAT_H_
#define RIVULET_CLIENT_CLI_CHAT_CHAT_H_

#include <string>

#include "client/cli/chat/line_reader.h"
#include "client/cli/chat/screen.h"
#include "client/cli/chat/signals.h"
#include "client/cli/commands.h"

namespace rivulet::cli {

struct ChatOptions {
  CommonOptions common;         // without json; the timeout is each call's
  v1::GenerateRequest request;  // everything but input and session
  std::string session;          // id or name of the one to go on with; empty: a new one
  std::string system;           // for models with a chat template
};

// Takes the signals and the locale of the process, so no other thread may run yet. 0 after /quit or
// the end of input, 1 when the server cannot be used or a line of a pipe failed, 130 interrupted
// (input that is no terminal), 143 terminated.
int RunChat(const ChatOptions& options);

// The same on a given server, input and output, for tests. `interactive`: a failed line is told and
// the next one is read.
int RunChat(const ChatOptions& options, bool interactive, ChatSignals& signals, LineReader& reader,
            Screen& screen);

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_CHAT_CHAT_H_
