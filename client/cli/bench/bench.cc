// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <ctime>
#include <string>
#include <utility>

#include "client/cli/bench/driver.h"
#include "client/cli/bench/options.h"
#include "client/cli/bench/recorder.h"
#include "client/cli/bench/report.h"
#include "client/cli/bench/workload.h"
#include "client/cli/commands.h"

namespace rivulet::cli::bench {
namespace {

constexpr std::chrono::milliseconds kModelTimeout(10'000);

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::string UtcNow() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

const char* ToString(Ending ending) {
  switch (ending) {
    case Ending::kComplete:
      return "complete";
    case Ending::kInterrupted:
      return "interrupted";
    case Ending::kGaveUp:
      return "gave up: the server was unavailable";
  }
  return "";
}

absl::StatusOr<v1::Model> AskForModel(const BenchOptions& options, Cancellation& cancellation) {
  Client client(options.common.server, options.common.access);
  return client.GetModel({.timeout = kModelTimeout, .cancellation = &cancellation});
}

int ExitCode(Ending ending, const Recorder& recorder) {
  if (ending == Ending::kInterrupted) return 130;
  if (recorder.total_succeeded() > 0) return 0;
  // Endless streams never succeed; running to the end without failures is success.
  return recorder.total_tokens() > 0 && recorder.total_failed() == 0 ? 0 : 1;
}

}  // namespace

int RunBench(const BenchOptions& options, Cancellation& cancellation) {
  if (absl::Status status = Validate(options); !status.ok()) {
    Fail(status);
    return 2;
  }
  RunResult result;
  absl::StatusOr<v1::Model> model = AskForModel(options, cancellation);
  if (!model.ok()) return Fail(model.status());
  const absl::StatusOr<Workload> workload = Workload::Make(options, model->vocab_size());
  if (!workload.ok()) return Fail(workload.status());
  result.model = *std::move(model);
  result.started = UtcNow();

  Recorder recorder(options);
  const TimePoint begin = Clock::now();
  const double cpu_before = CpuSeconds();
  const Ending ending = Driver(options, *workload, recorder, cancellation).Run();
  result.client_cpu_seconds = CpuSeconds() - cpu_before;
  result.wall_seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  result.ending = ToString(ending);
  result.total_tokens = recorder.total_tokens();
  result.phases = recorder.TakePhases();
  const int code = ExitCode(ending, recorder);
  const bool printed =
      Print(options.common.json ? JsonReport(options, result) : TextReport(options, result));
  return printed ? code : 1;
}

}  // namespace rivulet::cli::bench
