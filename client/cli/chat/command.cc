// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/chat/command.h"

namespace rivulet::cli {
namespace {

struct Name {
  std::string_view word;
  CommandKind kind;
};

constexpr Name kNames[] = {
    {"/new", CommandKind::kNew},       {"/name", CommandKind::kName},
    {"/switch", CommandKind::kSwitch}, {"/sessions", CommandKind::kSessions},
    {"/undo", CommandKind::kUndo},     {"/retry", CommandKind::kRetry},
    {"/fork", CommandKind::kFork},     {"/tree", CommandKind::kTree},
    {"/stats", CommandKind::kStats},   {"/help", CommandKind::kHelp},
    {"/quit", CommandKind::kQuit},
};

constexpr std::string_view kWhiteSpace = " \t\r\n";

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kWhiteSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kWhiteSpace) - first + 1);
}

bool Contains(std::string_view characters, char c) {
  return characters.find(c) != std::string_view::npos;
}

bool IsCommand(std::string_view line) {
  return !line.empty() && line[0] == '/' && (line.size() == 1 || line[1] != '/');
}

}  // namespace

Command ParseCommand(std::string_view line) {
  if (line.size() > 1 && line[0] == '/' && line[1] == '/')
    line.remove_prefix(1);
  else if (IsCommand(line)) {
    const size_t end = line.find_first_of(kWhiteSpace);
    const std::string_view word = line.substr(0, end);
    for (const Name& name : kNames) {
      if (name.word != word) continue;
      const auto rest = end == std::string_view::npos ? std::string_view() : line.substr(end);
      return {name.kind, std::string(Trimmed(rest))};
    }
    return {CommandKind::kUnknown, std::string(word)};
  }
  return {CommandKind::kText, std::string(line)};
}

bool TakeContinuation(std::string& line) {
  if (line.empty() || line.back() != '\\' || IsCommand(line)) return false;
  line.pop_back();
  return true;
}

std::string_view CommandHelp() {
  return "/new [NAME]    start a new session; the old one stays until you leave\n"
         "/name NAME     name the session, so that it is kept when you leave\n"
         "/sessions      the server's sessions; * marks yours\n"
         "/switch ID     continue another session: its id, the start of its id, or its name\n"
         "/undo          take back the last turn; again: the one before it\n"
         "/retry         take back the last turn and send its line again\n"
         "/fork [NAME]   go on in a copy of the session; the original stays as it is\n"
         "/tree          the server's sessions and which were forked from which\n"
         "/stats         the length of the session and the numbers of the last turn\n"
         "/help          this list\n"
         "/quit          leave, like ctrl-D; sessions without a name are deleted\n"
         "\\ at the end of a line continues it on the next line; // at its start sends a /.\n"
         "ctrl-C stops the answer, or clears the line. Arrow up recalls earlier lines.\n";
}

std::string JoinText(std::string_view before, std::string_view line) {
  const bool needs_space = !before.empty() && !line.empty() &&
                           !Contains(" \t\r\n([{-", before.back()) &&
                           !Contains(" \t\r\n.,;:!?)]}", line.front());
  std::string text(needs_space ? 1 : 0, ' ');
  return text.append(line);
}

}  // namespace rivulet::cli
