// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/log/load_progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "server/log/log.h"

namespace rivulet {
namespace {

constexpr size_t kBarWidth = 20;
constexpr size_t kDefaultColumns = 80;

size_t TerminalColumns() {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefaultColumns;
  return size.ws_col;
}

// The line of a bar on the terminal, for as long as it lives.
class Bar {
 public:
  Bar() = default;
  ~Bar() { std::fputs("\r\x1b[K", stderr); }
  Bar(const Bar&) = delete;
  Bar& operator=(const Bar&) = delete;

  void Show(double share, const std::string& what) {
    // Leaves the last column free: some terminals wrap as soon as it is written.
    const std::string line = LoadProgressLine(share, what, TerminalColumns() - 1);
    std::fprintf(stderr, "\r%s\x1b[K", line.c_str());
    std::fflush(stderr);
  }
};

}  // namespace

std::string LoadProgressLine(double share, const std::string& what, size_t columns) {
  share = std::clamp(share, 0.0, 1.0);
  const auto filled = static_cast<size_t>(share * static_cast<double>(kBarWidth));
  char percent[8];
  std::snprintf(percent, sizeof(percent), "%3d", static_cast<int>(share * 100));
  const std::string line = "loading [" + std::string(filled, '#') +
                           std::string(kBarWidth - filled, '.') + "] " + percent + " %  " + what;
  return line.substr(0, columns);
}

std::function<void(double, const std::string&)> LoadProgress() {
  const bool shown = LogLevel() == "info" || LogLevel() == "debug";
  if (shown && isatty(STDERR_FILENO) == 1) {
    return [bar = std::make_shared<Bar>()](double share, const std::string& what) {
      bar->Show(share, what);
    };
  }
  return [last = -1](double share, const std::string& what) mutable {
    const int tenth = static_cast<int>(share * 10);
    if (tenth == last) return;
    last = tenth;
    LogInfo("loading", {{"percent", tenth * 10}, {"now", what}});
  };
}

}  // namespace rivulet
