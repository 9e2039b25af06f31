// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Parses lines typed into `rivulet chat`. Pure functions.
#ifndef RIVULET_CLIENT_CLI_CHAT_COMMAND_H_
#define RIVULET_CLIENT_CLI_CHAT_COMMAND_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace rivulet::cli {

enum class CommandKind : uint8_t {
  kText,  // `argument` is text for the model
  kNew,
  kName,
  kSessions,
  kSwitch,
  kUndo,
  kRetry,
  kFork,
  kTree,
  kStats,
  kHelp,
  kQuit,
  kUnknown,  // `argument` is what was typed
};

struct Command {
  CommandKind kind = CommandKind::kText;
  std::string argument;  // of commands: without surrounding spaces
};

// A line that starts with one / is a command; of a line that starts with //, one / is dropped.
Command ParseCommand(std::string_view line);

// Removes a backslash at the end of `line`, which means that the text continues on the next line.
// False, and unchanged, for lines without one and for commands.
bool TakeContinuation(std::string& line);

// The list that /help prints.
std::string_view CommandHelp();

// `line` as a continuation of `before`, the end of the session's text, for models without a chat
// template: with a space in front where English needs one. A line that begins with white space or
// closing punctuation is unchanged, and so is the first line of a session.
std::string JoinText(std::string_view before, std::string_view line);

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_CHAT_COMMAND_H_
