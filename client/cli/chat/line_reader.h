// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Where the lines of `rivulet chat` come from.
//
// Threading: one thread.
#ifndef RIVULET_CLIENT_CLI_CHAT_LINE_READER_H_
#define RIVULET_CLIENT_CLI_CHAT_LINE_READER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "client/cli/chat/signals.h"

namespace rivulet::cli {

struct ReadResult {
  enum Outcome : uint8_t { kLine, kEnd, kInterrupted, kTerminated };
  Outcome outcome = kEnd;
  std::string line;  // without its newline
};

class LineReader {
 public:
  virtual ~LineReader() = default;
  virtual ReadResult Read(const std::string& prompt) = 0;
  // For a later arrow-up, in this run and the next ones.
  virtual void AddToHistory(const std::string& line) = 0;
};

// Standard input that is no terminal: lines as they come, without prompt. `signals` outlives it.
std::unique_ptr<LineReader> MakePipeReader(ChatSignals& signals);

// Standard input that is a terminal: a line is edited by libedit, whose ~/.editrc holds. The
// history is kept in `history_file`, made with its folders for this user's eyes alone; if it cannot
// be written, or is empty, it lasts until the end. `signals` outlives it. Null if the terminal
// cannot be used. UseUtf8Locale comes first.
std::unique_ptr<LineReader> MakeTerminalReader(ChatSignals& signals,
                                               const std::string& history_file, bool bold_prompt);

// $XDG_STATE_HOME/rivulet/history, or ~/.local/state/rivulet/history. Empty if neither is known.
std::string HistoryFile();

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_CHAT_LINE_READER_H_
