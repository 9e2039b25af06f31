// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace rivulet::cli::bench {
namespace {

constexpr std::chrono::milliseconds kInterval(200);
constexpr size_t kBarWidth = 20;
constexpr size_t kDefaultColumns = 80;

size_t TerminalColumns() {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefaultColumns;
  return size.ws_col;
}

std::string Bar(double fraction) {
  const double full = std::clamp(fraction, 0.0, 1.0) * static_cast<double>(kBarWidth);
  const auto filled = static_cast<size_t>(full);
  return absl::StrCat("[", std::string(filled, '#'), std::string(kBarWidth - filled, '.'), "]");
}

}  // namespace

std::string ProgressLine(const ProgressState& state, size_t columns) {
  return absl::StrFormat("%s %s %.0f s  %d done  %d running  %.0f tokens/s  %d errors",
                         Bar(state.fraction), state.phase, state.elapsed_seconds, state.done,
                         state.running, state.tokens_per_second, state.errors)
      .substr(0, columns);
}

Progress::Progress(TimePoint start)
    : terminal_(isatty(STDERR_FILENO) == 1), start_(start), next_(start), last_(start) {}

Progress::~Progress() {
  if (terminal_) std::fputs("\r\x1b[K", stderr);
}

void Progress::Show(ProgressState state, uint64_t tokens, TimePoint now) {
  const double passed = std::chrono::duration<double>(now - last_).count();
  state.elapsed_seconds = std::chrono::duration<double>(now - start_).count();
  if (passed > 0) state.tokens_per_second = static_cast<double>(tokens - last_tokens_) / passed;
  // Leaves the last column free: some terminals wrap as soon as it is written.
  std::fprintf(stderr, "\r%s\x1b[K", ProgressLine(state, TerminalColumns() - 1).c_str());
  last_ = now;
  last_tokens_ = tokens;
  next_ = now + kInterval;
}

}  // namespace rivulet::cli::bench
