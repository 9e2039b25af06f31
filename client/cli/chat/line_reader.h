// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Sources of `rivulet chat`'s input lines.
//
// Threading: one thread.
#ifndef RIVULET_CLIENT_CLI_CHAT_LINE_READER_H_
#define RIVULET_CLIENT_CLI_CHAT_LINE_READER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "client/cli/signals.h"

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
  // For arrow-up, in this run and later ones.
  virtual void AddToHistory(const std::string& line) = 0;
};

// Reads lines from standard input if that is not a terminal, without prompts. `signals` must
// outlive it.
std::unique_ptr<LineReader> MakePipeReader(SignalWatcher& signals);

// Reads lines from a terminal with libedit, which reads ~/.editrc. The history is saved in
// `history_file`, which is created, with its folder, readable by this user only; if it cannot be
// written, or is empty, the history lasts for this run. `signals` must outlive it. Null if the
// terminal cannot be used. Call UseUtf8Locale before.
std::unique_ptr<LineReader> MakeTerminalReader(SignalWatcher& signals,
                                               const std::string& history_file, bool bold_prompt);

// $XDG_STATE_HOME/rivulet/history, or ~/.local/state/rivulet/history. Empty if neither is set.
std::string HistoryFile();

}  // namespace rivulet::cli

#endif  // RIVULET_CLIENT_CLI_CHAT_LINE_READER_H_
