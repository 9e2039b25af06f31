// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/terminal.h"

#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "kernels/base/check.h"

namespace rivulet::e2e {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string Path() {
  const char* const path = std::getenv("PATH");
  return std::string("PATH=").append(path == nullptr ? "/usr/bin:/bin" : path);
}

}  // namespace

std::unique_ptr<Terminal> Terminal::Start(const std::vector<std::string>& arguments,
                                          const std::vector<std::string>& environment) {
  std::vector<std::string> argument_texts = arguments;
  std::vector<std::string> environment_texts = environment;
  environment_texts.push_back(Path());
  environment_texts.emplace_back("TERM=xterm");
  // Made before the fork: between it and exec nothing may allocate.
  std::vector<char*> argument_pointers = Pointers(argument_texts);
  std::vector<char*> environment_pointers = Pointers(environment_texts);
  const winsize size{.ws_row = 30, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
  int descriptor = -1;
  const pid_t pid = forkpty(&descriptor, nullptr, nullptr, &size);
  RIVULET_CHECK(pid >= 0, "forkpty");
  if (pid == 0) {
    execve(argument_pointers[0], argument_pointers.data(), environment_pointers.data());
    _exit(127);
  }
  return std::unique_ptr<Terminal>(new Terminal(pid, descriptor));
}

Terminal::Terminal(pid_t pid, int descriptor)
    : pid_(pid), descriptor_(descriptor), reader_([this] { Gather(); }) {}

Terminal::~Terminal() {
  if (!reaped_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  reader_.join();
  close(descriptor_);
}

// The read fails (EIO) once the program has ended.
void Terminal::Gather() {
  char piece[4096];
  for (ssize_t bytes = 0; (bytes = read(descriptor_, piece, sizeof piece)) > 0;) {
    MutexLock lock(&mutex_);
    output_.append(piece, static_cast<size_t>(bytes));
    changed_.NotifyAll();
  }
  MutexLock lock(&mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

void Terminal::Type(const std::string& keys) {
  RIVULET_CHECK(write(descriptor_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()),
                "write to the terminal");
}

void Terminal::Resize(int columns, int rows) {
  winsize size{};
  size.ws_col = static_cast<uint16_t>(columns);
  size.ws_row = static_cast<uint16_t>(rows);
  RIVULET_CHECK(ioctl(descriptor_, TIOCSWINSZ, &size) == 0, "TIOCSWINSZ");
}

Terminal::Found Terminal::WaitFor(const std::string& text, std::chrono::seconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  MutexLock lock(&mutex_);
  for (;;) {
    if (const size_t at = output_.find(text, searched_); at != std::string::npos) {
      const Found found{true, output_.substr(searched_, at - searched_)};
      searched_ = at + text.size();
      return found;
    }
    if (ended_ || changed_.WaitUntil(&mutex_, deadline)) break;
  }
  return {false, output_.substr(searched_)};
}

int Terminal::Wait(std::chrono::seconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (Clock::now() > deadline) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  reaped_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

size_t Terminal::printed() const {
  MutexLock lock(&mutex_);
  return output_.size();
}

std::string Terminal::output() const {
  MutexLock lock(&mutex_);
  return output_;
}

}  // namespace rivulet::e2e
