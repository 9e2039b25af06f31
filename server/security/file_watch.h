// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Tells when files may have changed: written, replaced, or, as Kubernetes does with a mounted
// Secret, a symbolic link beside them replaced. It watches their directories, by inotify. Not every
// file system reports changes made by other machines (NFS), so it also tells once a minute.
//
// Threading: construction and destruction on one thread; `changed` is called on a thread of its
// own, until destruction returns.
#ifndef RIVULET_SERVER_SECURITY_FILE_WATCH_H_
#define RIVULET_SERVER_SECURITY_FILE_WATCH_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace rivulet {

class FileWatch {
 public:
  // `changed` must not throw; it may be called without a change, and comes a second after one at
  // the latest, also while other files of the directories change. UNAVAILABLE without file
  // descriptors.
  static absl::StatusOr<std::unique_ptr<FileWatch>> Start(const std::vector<std::string>& files,
                                                          std::function<void()> changed);
  ~FileWatch();
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

 private:
  explicit FileWatch(std::function<void()> changed) : changed_(std::move(changed)) {}
  absl::Status Open(const std::vector<std::string>& files);
  void Run();
  bool Wait(int milliseconds, bool& changes);

  const std::function<void()> changed_;
  int inotify_ = -1;
  int end_ = -1;  // eventfd
  std::thread thread_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SECURITY_FILE_WATCH_H_
