// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/server_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <utility>

#include "kernels/base/check.h"
#include "server/http/testing.h"

extern char** environ;

namespace rivulet::e2e {
namespace {

constexpr std::chrono::seconds kStartLimit{120};  // sanitizers on two busy cores

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// A file that holds the child's standard input; unlinked at once.
int InputFile(const std::string& input) {
  std::string path = "/tmp/rivulet-input-XXXXXX";
  const int file = mkstemp(path.data());
  RIVULET_CHECK(file >= 0, "no temporary file");
  unlink(path.c_str());
  RIVULET_CHECK(write(file, input.data(), input.size()) == static_cast<ssize_t>(input.size()),
                "no input file");
  lseek(file, 0, SEEK_SET);
  return file;
}

void PauseForDebugger(pid_t pid) {
  if (Environment("RIVULET_E2E_PAUSE").empty()) return;
  std::cout << "server process " << pid << "; ENTER goes on" << std::endl;
  std::cin.get();
}

}  // namespace

std::unique_ptr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& arguments,
                                                  const std::string& input) {
  int output[2];
  RIVULET_CHECK(pipe2(output, O_CLOEXEC) == 0, "no pipe");
  const int in = InputFile(input);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDERR_FILENO);
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::unique_ptr<ChildProcess> child(new ChildProcess);
  const int error = posix_spawn(&child->pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(output[1]);
  close(in);
  RIVULET_CHECK(error == 0, "the program did not start");
  child->reader_ = std::thread([raw = child.get(), fd = output[0]] { raw->Gather(fd); });
  return child;
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) Wait(std::chrono::seconds(0));
}

void ChildProcess::Gather(int descriptor) {
  char buffer[4096];
  for (ssize_t got; (got = read(descriptor, buffer, sizeof buffer)) > 0;) {
    MutexLock lock(&mutex_);
    output_.append(buffer, static_cast<size_t>(got));
    changed_.NotifyAll();
  }
  close(descriptor);
  MutexLock lock(&mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

void ChildProcess::Signal(int signal) {
  if (pid_ > 0) kill(pid_, signal);
}

Exit ChildProcess::Wait(std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  {
    MutexLock lock(&mutex_);
    while (!ended_ && !changed_.WaitUntil(&mutex_, deadline)) {
    }
    if (!ended_) kill(pid_, SIGKILL);
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  reader_.join();
  Exit exit{.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            .killed = WIFSIGNALED(status),
            .output = ""};
  exit.output = output();
  return exit;
}

std::string ChildProcess::output() const {
  MutexLock lock(&mutex_);
  return output_;
}

std::string ChildProcess::WaitForLine(const std::string& marker, std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  MutexLock lock(&mutex_);
  while (true) {
    const size_t at = output_.find(marker);
    const size_t end = at == std::string::npos ? at : output_.find('\n', at);
    if (end != std::string::npos) {
      return output_.substr(at + marker.size(), end - at - marker.size());
    }
    if (ended_ || changed_.WaitUntil(&mutex_, deadline)) return "";
  }
}

Exit RunProgram(const std::vector<std::string>& arguments, const std::string& input,
                std::chrono::seconds limit) {
  return ChildProcess::Start(arguments, input)->Wait(limit);
}

std::string Binary(const std::string& name) {
  const std::string folder = Environment("RIVULET_BIN_DIR");
  if (!folder.empty()) return folder + "/" + name;
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../bin" / name;
}

std::string SourcePath(const std::string& relative) {
  const std::string folder = Environment("RIVULET_SOURCE_DIR");
  return folder.empty() ? relative : folder + "/" + relative;
}

absl::StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::Start(
    const std::string& model, const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {Binary("rivulet-server"), "--model=" + model,
                                        "--listen=127.0.0.1:0", "--http=127.0.0.1:0"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  auto server = std::make_unique<ServerProcess>();
  server->process_ = ChildProcess::Start(arguments);
  server->http_address_ = server->process_->WaitForLine("http listening on ", kStartLimit);
  server->address_ = server->process_->WaitForLine("grpc listening on ", kStartLimit);
  if (server->address_.empty() || server->http_address_.empty()) {
    return absl::InternalError("the server did not start:\n" + server->process_->output());
  }
  PauseForDebugger(server->process_->pid());
  return server;
}

Exit ServerProcess::Stop() {
  process_->Signal(SIGTERM);
  return process_->Wait(std::chrono::seconds(60));
}

HttpAnswer HttpGet(const std::string& address, const std::string& path) {
  const TestResponse response = HttpGetOnce(address, path);
  return {response.status, response.body};
}

double Metric(const std::string& page, const std::string& name) {
  const size_t at = page.find("\n" + name);
  if (at == std::string::npos) return -1;
  const size_t space = page.find(' ', at + 1 + name.size());
  return std::stod(page.substr(space));
}

}  // namespace rivulet::e2e
