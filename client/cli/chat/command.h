// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a line typed into `rivulet chat` asks for. Pure functions.
#ifndef RIVULET_CLIENT_CLI_CHAT_COMMAND_H_
#define RIVULET_CLIENT_CLI_CHAT_COMMAND_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace rivulet::cli {

enum class CommandKind : uint8_t {
  kText,  // for the model; `argument` is the text
  kNew,
  kName,
  kSessions,
  kSwitch,
  kStats,
  kHelp,
  kQuit,
  kUnknown,  // `argument` is what was typed
};

struct Command {
  CommandKind kind = CommandKind::kText;
  std::string argument;  // without spaces around it
};

// A line that starts with one / is a command; two send the text from the second on.
Command ParseCommand(std::string_view line);

// Takes the backslash off a line that ends with one: the text goes on in the next line. Commands do
// not.
bool TakeContinuation(std::string& line);

// The list that /help prints.
std::string_view CommandHelp();

// The user's text as a model without chat template has to see it, so that it continues `before`,
// the end of the session's text: with a space between them where a writer would put one. A line
// that begins with white space or closing punctuation is left as it is, and so is the first of a
// session.
std::string JoinText(std::string_view before, std::string_view line);

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_CHAT_COMMAND_H_
