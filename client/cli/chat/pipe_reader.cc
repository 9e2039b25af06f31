// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cerrno>

#include "client/cli/chat/line_reader.h"

namespace rivulet::cli {
namespace {

class PipeReader final : public LineReader {
 public:
  explicit PipeReader(SignalWatcher& signals) : signals_(signals) {}

  ReadResult Read(const std::string&) override {
    while (buffer_.find('\n') == std::string::npos && !ended_) {
      const InputEvent event = signals_.Wait(STDIN_FILENO);
      if (event == InputEvent::kInterrupted) return {ReadResult::kInterrupted, ""};
      if (event == InputEvent::kTerminated) return {ReadResult::kTerminated, ""};
      if (event == InputEvent::kReadable) Fill();
    }
    if (buffer_.empty()) return {ReadResult::kEnd, ""};
    return {ReadResult::kLine, TakeLine()};
  }

  void AddToHistory(const std::string&) override {}

 private:
  void Fill() {
    char piece[4096];
    const ssize_t bytes = read(STDIN_FILENO, piece, sizeof piece);
    if (bytes > 0) buffer_.append(piece, static_cast<size_t>(bytes));
    if (bytes == 0 || (bytes < 0 && errno != EINTR && errno != EAGAIN)) ended_ = true;
  }

  // Up to the newline, or all that is left after the end.
  std::string TakeLine() {
    const size_t newline = buffer_.find('\n');
    std::string line = buffer_.substr(0, newline);
    buffer_.erase(0, newline == std::string::npos ? newline : newline + 1);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    return line;
  }

  SignalWatcher& signals_;
  std::string buffer_;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<LineReader> MakePipeReader(SignalWatcher& signals) {
  return std::make_unique<PipeReader>(signals);
}

}  // namespace rivulet::cli
