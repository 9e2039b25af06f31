// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What forks and rewinds of a session cost a running server, by the length of its context:
//
//   rivulet-fork-bench --server 127.0.0.1:50051 --pid $(pidof rivulet-server)
//
// One session grows turn by turn. At each length: the time of ForkSession and RewindSession as a
// client sees it, and the server's memory for many forks.
//
// With --within-turn, instead: what rewinds within one turn compute again, and what the borders
// cost that the server keeps for them (--keep-borders, --prompt-borders).
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "client/client.h"
#include "kernels/base/status.h"

ABSL_FLAG(std::string, server, "127.0.0.1:50051", "address of the server");
ABSL_FLAG(std::string, pid, "", "its process, for its memory");
ABSL_FLAG(std::string, tokens, "1024,16384,131072", "lengths of the context, ascending");
ABSL_FLAG(uint32_t, forks, 2000, "forks at each length");
ABSL_FLAG(bool, within_turn, false, "measure rewinds within a turn");
ABSL_FLAG(uint32_t, prompt, 1024, "--within-turn: tokens of its prompt");
ABSL_FLAG(uint32_t, answer, 2048, "--within-turn: tokens of its answer");

namespace rivulet {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double Percentile(std::vector<double>& times, double share) {
  std::sort(times.begin(), times.end());
  return times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))];
}

// Kilobytes of a process in memory; 0: not known.
uint64_t ResidentKilobytes(const std::string& pid) {
  std::ifstream status("/proc/" + pid + "/status");
  std::string word;
  uint64_t kilobytes = 0;
  while (status >> word) {
    if (word == "VmRSS:") status >> kilobytes;
  }
  return kilobytes;
}

// That a process has used; 0: not known.
double ProcessorSeconds(const std::string& pid) {
  std::ifstream stat("/proc/" + pid + "/stat");
  std::string word;
  uint64_t user = 0, system = 0;
  for (int i = 1; i < 14 && stat >> word; ++i) continue;
  stat >> user >> system;
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

class Bench {
 public:
  Bench() : client_(absl::GetFlag(FLAGS_server)) {}

  absl::Status Run() {
    RIVULET_ASSIGN_OR_RETURN(const v1::Model model, client_.GetModel());
    vocab_ = model.vocab_size();
    if (absl::GetFlag(FLAGS_within_turn)) return RunWithinTurn();
    RIVULET_ASSIGN_OR_RETURN(const v1::Session session, client_.CreateSession({}));
    id_ = session.id();
    std::printf("%s: a state of %lu bytes\n\n", model.name().c_str(),
                static_cast<unsigned long>(model.state_bytes_per_session()));
    std::printf(
        "| tokens | fork, us: p50 | p99 | bytes a fork | rewind, us: p50 | computed again |\n");
    std::printf("|---|---|---|---|---|---|\n");
    for (const absl::string_view text : absl::StrSplit(absl::GetFlag(FLAGS_tokens), ',')) {
      uint64_t tokens = 0;
      if (!absl::SimpleAtoi(text, &tokens)) return absl::InvalidArgumentError("--tokens: 1,2,3");
      RIVULET_RETURN_IF_ERROR(GrowTo(tokens));
      RIVULET_RETURN_IF_ERROR(Measure(tokens));
    }
    return client_.DeleteSession(id_);
  }

 private:
  absl::StatusOr<v1::Usage> Turn(const std::string& id, uint64_t tokens, uint32_t answer = 1) {
    v1::GenerateRequest request;
    request.set_session_id(id);
    request.set_max_tokens(answer);
    request.mutable_stop()->set_ignore_eos(true);
    for (uint64_t i = 0; i < tokens; ++i) {
      request.mutable_token_ids()->add_ids(static_cast<uint32_t>(random_() % vocab_));
    }
    v1::Usage usage;
    RIVULET_RETURN_IF_ERROR(client_.Generate(request, {}, [&](const v1::GenerateResponse& message) {
      if (message.has_usage()) usage = message.usage();
      return true;
    }));
    return usage;
  }

  absl::Status GrowTo(uint64_t tokens) {
    while (position_ < tokens) {
      const uint64_t more = std::min<uint64_t>(tokens - position_, 65536);
      RIVULET_RETURN_IF_ERROR(Turn(id_, more - 1).status());
      position_ += more;
    }
    return absl::OkStatus();
  }

  absl::Status Measure(uint64_t tokens) {
    const uint32_t count = absl::GetFlag(FLAGS_forks);
    const uint64_t before = ResidentKilobytes(absl::GetFlag(FLAGS_pid));
    std::vector<std::string> forks;
    std::vector<double> fork_times;
    for (uint32_t i = 0; i < count; ++i) {
      v1::ForkSessionRequest request;
      request.set_id(id_);
      const Clock::time_point begin = Clock::now();
      RIVULET_ASSIGN_OR_RETURN(const v1::Session fork, client_.ForkSession(request));
      fork_times.push_back(MicrosecondsSince(begin));
      forks.push_back(fork.id());
    }
    const uint64_t after = ResidentKilobytes(absl::GetFlag(FLAGS_pid));
    RIVULET_ASSIGN_OR_RETURN(const Rewound rewound, RewindOne(forks.back()));
    for (const std::string& id : forks) RIVULET_RETURN_IF_ERROR(client_.DeleteSession(id));
    std::printf("| %lu | %.0f | %.0f | %.0f | %.0f | %lu |\n", static_cast<unsigned long>(tokens),
                Percentile(fork_times, 0.5), Percentile(fork_times, 0.99),
                1024.0 * static_cast<double>(after - before) / count, rewound.microseconds,
                static_cast<unsigned long>(rewound.computed));
    return absl::OkStatus();
  }

  absl::Status RunWithinTurn() {
    const uint64_t prompt = absl::GetFlag(FLAGS_prompt), answer = absl::GetFlag(FLAGS_answer);
    RIVULET_ASSIGN_OR_RETURN(const v1::Session session, client_.CreateSession({}));
    const double before = ProcessorSeconds(absl::GetFlag(FLAGS_pid));
    const Clock::time_point begin = Clock::now();
    RIVULET_RETURN_IF_ERROR(Turn(session.id(), prompt, static_cast<uint32_t>(answer)).status());
    const double seconds = MicrosecondsSince(begin) / 1e6;
    const double processor = ProcessorSeconds(absl::GetFlag(FLAGS_pid)) - before;
    RIVULET_ASSIGN_OR_RETURN(const v1::Session after, client_.GetSession(session.id()));
    std::printf("%lu + %lu tokens: %.2f s, %.2f s of processor time; %lu borders, %.1f MB kept\n",
                static_cast<unsigned long>(prompt), static_cast<unsigned long>(answer), seconds,
                processor, static_cast<unsigned long>(after.kept_borders()),
                static_cast<double>(after.kept_bytes()) / 1e6);
    RIVULET_RETURN_IF_ERROR(RewindDown(session.id(), prompt + answer, prompt, "the answer"));
    RIVULET_RETURN_IF_ERROR(RewindDown(session.id(), prompt, 0, "the prompt"));
    return client_.DeleteSession(session.id());
  }

  // To random positions between two, each before the last.
  absl::Status RewindDown(const std::string& id, uint64_t from, uint64_t to, const char* where) {
    uint64_t most = 0, near = 0, sum = 0, count = 0;
    for (uint64_t position = from; position > to + 40; ++count) {
      position -= 1 + random_() % 40;
      v1::RewindSessionRequest request;
      request.set_id(id);
      request.set_position(position);
      RIVULET_RETURN_IF_ERROR(client_.RewindSession(request).status());
      RIVULET_ASSIGN_OR_RETURN(const v1::Usage usage, Turn(id, 1));
      const uint64_t again = position - 1 - usage.cached_tokens();
      most = std::max(most, again);
      if (from - position < 256) near = std::max(near, again);
      sum += again;
    }
    std::printf(
        "%lu rewinds into %s: computed again %.1f tokens in the mean, at most %lu; within "
        "its last 256 tokens at most %lu\n",
        static_cast<unsigned long>(count), where,
        static_cast<double>(sum) / static_cast<double>(count), static_cast<unsigned long>(most),
        static_cast<unsigned long>(near));
    return absl::OkStatus();
  }

  struct Rewound {
    double microseconds = 0;
    uint64_t computed = 0;  // tokens of a context that is whole again
  };

  // Runs some turns on a fork and rewinds it to the start of each.
  absl::StatusOr<Rewound> RewindOne(const std::string& id) {
    std::vector<double> times;
    std::vector<uint64_t> positions;
    for (int i = 0; i < 6; ++i) {
      RIVULET_ASSIGN_OR_RETURN(const v1::Session session, client_.GetSession(id));
      positions.push_back(session.position());
      RIVULET_RETURN_IF_ERROR(Turn(id, 37).status());
    }
    for (auto position = positions.rbegin(); position != positions.rend(); ++position) {
      v1::RewindSessionRequest request;
      request.set_id(id);
      request.set_position(*position);
      const Clock::time_point begin = Clock::now();
      RIVULET_RETURN_IF_ERROR(client_.RewindSession(request).status());
      times.push_back(MicrosecondsSince(begin));
    }
    RIVULET_ASSIGN_OR_RETURN(const v1::Usage usage, Turn(id, 1));
    return Rewound{Percentile(times, 0.5), positions.front() - usage.cached_tokens()};
  }

  Client client_;
  std::mt19937 random_{1};
  uint32_t vocab_ = 0;
  std::string id_;
  uint64_t position_ = 0;
};

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("what forks and rewinds cost a running server");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = rivulet::Bench().Run();
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
