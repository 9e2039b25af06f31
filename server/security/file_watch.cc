// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/security/file_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <set>
#include <utility>

#include "kernels/base/status.h"

namespace rivulet {
namespace {

constexpr int kMinute = 60'000;
// A rotation changes several files in short succession.
constexpr int kSettleTime = 100;
// Other files of the directory may change all the time.
constexpr std::chrono::seconds kLongestSettling(1);

}  // namespace

absl::StatusOr<std::unique_ptr<FileWatch>> FileWatch::Start(const std::vector<std::string>& files,
                                                            std::function<void()> changed) {
  std::unique_ptr<FileWatch> watch(new FileWatch(std::move(changed)));
  RIVULET_RETURN_IF_ERROR(watch->Open(files));
  watch->thread_ = std::thread([watch = watch.get()] { watch->Run(); });
  return watch;
}

absl::Status FileWatch::Open(const std::vector<std::string>& files) {
  inotify_ = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  end_ = eventfd(0, EFD_CLOEXEC);
  if (end_ < 0) return absl::UnavailableError("no file descriptor is left to watch files with");
  std::set<std::string> directories;
  for (const std::string& file : files) {
    const std::string parent = std::filesystem::path(file).parent_path();
    directories.insert(parent.empty() ? "." : parent);
  }
  // Without inotify, or where a directory cannot be watched, once a minute has to do.
  for (const std::string& directory : directories) {
    (void)inotify_add_watch(inotify_, directory.c_str(),
                            IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE | IN_ATTRIB);
  }
  return absl::OkStatus();
}

FileWatch::~FileWatch() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    (void)!write(end_, &one, sizeof(one));
    thread_.join();
  }
  if (inotify_ >= 0) close(inotify_);
  if (end_ >= 0) close(end_);
}

// False at the end.
bool FileWatch::Wait(int milliseconds, bool& changes) {
  pollfd wait[] = {{.fd = end_, .events = POLLIN, .revents = 0},
                   {.fd = inotify_, .events = POLLIN, .revents = 0}};
  (void)poll(wait, 2, milliseconds);
  if (wait[0].revents != 0) return false;
  changes = (wait[1].revents & POLLIN) != 0;
  std::array<char, 4096> events;
  while (changes && read(inotify_, events.data(), events.size()) > 0) continue;
  return true;
}

void FileWatch::Run() {
  bool changes = false;
  while (Wait(kMinute, changes)) {
    const auto settled = std::chrono::steady_clock::now() + kLongestSettling;
    while (changes && std::chrono::steady_clock::now() < settled) {
      if (!Wait(kSettleTime, changes)) return;
    }
    changed_();
  }
}

}  // namespace rivulet
