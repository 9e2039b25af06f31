// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How much of its prompts a server does not compute again, and the time to the first token, on a
// generated trace:
//
//   rivulet-prefix-bench --server 127.0.0.1:50051 --trace agents --mode resend
//
// agents  8 agents with one system prompt of 1500 random tokens (instructions and tools). Each gets
//         a task of 100 to 300 tokens and takes 8 steps: an answer of 30 to 90 tokens, then a
//         result of 50 to 400 tokens. The agents take turns, in order.
// chats   24 conversations, each with one of three system prompts of 37, 400 and 900 tokens, and of
//         2 to 8 turns: a message of 10 to 120 tokens, an answer of 30 to 100. The next turn is
//         always that of a conversation chosen at random.
//
// Each request is sent when the one before it has ended. With --mode resend it is the whole context
// so far, the generated tokens included, without a session; with --mode session it is what is new.
// --seed gives all numbers and tokens. Answers are greedy, so every mode has the same contexts.
//
// The last lines say what a cache of whole blocks would have found on the same trace, with memory
// for everything: of each prompt, the longest beginning of an earlier context, cut to whole blocks,
// with at least one token left to compute.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "client/client.h"
#include "kernels/base/status.h"

ABSL_FLAG(std::string, server, "127.0.0.1:50051", "address of the server");
ABSL_FLAG(std::string, trace, "agents", "agents or chats");
ABSL_FLAG(std::string, mode, "resend", "resend or session");
ABSL_FLAG(uint64_t, seed, 1, "of the trace");

namespace rivulet {
namespace {

using Clock = std::chrono::steady_clock;
using Tokens = std::vector<uint32_t>;

constexpr size_t kAgents = 8, kSteps = 8, kChats = 24;
// vLLM's blocks for hybrid models are between these two; 16 is for comparison.
constexpr uint64_t kBlocks[] = {16, 528, 1056, 2112, 4224};

struct Conversation {
  Tokens context;  // of all requests and answers
  Tokens next;     // of the next request, beyond the context
  size_t turns_left = 0;
  std::string session;
};

struct Sent {
  uint64_t prompt = 0, cached = 0;
  double first_token = 0;  // seconds
};

double Percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

class Bench {
 public:
  Bench()
      : client_(absl::GetFlag(FLAGS_server)),
        agents_(absl::GetFlag(FLAGS_trace) == "agents"),
        sessions_(absl::GetFlag(FLAGS_mode) == "session"),
        random_(absl::GetFlag(FLAGS_seed)) {}

  absl::Status Run() {
    RIVULET_ASSIGN_OR_RETURN(const v1::Model model, client_.GetModel());
    vocab_ = model.vocab_size();
    agents_ ? MakeAgents() : MakeChats();
    const Clock::time_point begin = Clock::now();
    while (Conversation* const next = Next()) RIVULET_RETURN_IF_ERROR(Turn(*next));
    Report(std::chrono::duration<double>(Clock::now() - begin).count());
    return absl::OkStatus();
  }

 private:
  uint64_t From(uint64_t least, uint64_t most) { return least + random_() % (most - least + 1); }
  Tokens Random(uint64_t count) {
    Tokens tokens(count);
    for (uint32_t& token : tokens) token = static_cast<uint32_t>(random_() % vocab_);
    return tokens;
  }
  static void Append(Tokens& to, const Tokens& from) {
    to.insert(to.end(), from.begin(), from.end());
  }

  void MakeAgents() {
    const Tokens system = Random(1500);
    for (size_t i = 0; i < kAgents; ++i) {
      Conversation& agent = conversations_.emplace_back();
      agent.next = system;
      Append(agent.next, Random(From(100, 300)));
      agent.turns_left = kSteps;
    }
  }

  void MakeChats() {
    const Tokens systems[] = {Random(37), Random(400), Random(900)};
    for (size_t i = 0; i < kChats; ++i) {
      Conversation& chat = conversations_.emplace_back();
      chat.next = systems[random_() % 3];
      Append(chat.next, Random(From(10, 120)));
      chat.turns_left = From(2, 8);
    }
  }

  // Null at the end of the trace.
  Conversation* Next() {
    std::vector<Conversation*> left;
    for (Conversation& conversation : conversations_) {
      if (conversation.turns_left > 0) left.push_back(&conversation);
    }
    if (left.empty()) return nullptr;
    if (!agents_) return left[random_() % left.size()];
    return *std::max_element(left.begin(), left.end(), [](const auto* a, const auto* b) {
      return a->turns_left < b->turns_left;
    });
  }

  absl::Status Turn(Conversation& conversation) {
    RIVULET_ASSIGN_OR_RETURN(v1::GenerateRequest request, RequestOf(conversation));
    Append(conversation.context, conversation.next);
    NoteFound(conversation.context);
    Sent& sent = sent_.emplace_back();
    sent.prompt = conversation.context.size();
    const Clock::time_point begin = Clock::now();
    RIVULET_RETURN_IF_ERROR(client_.Generate(request, {}, [&](const v1::GenerateResponse& message) {
      const double now = std::chrono::duration<double>(Clock::now() - begin).count();
      if (sent.first_token == 0 && message.token_ids_size() > 0) sent.first_token = now;
      conversation.context.insert(conversation.context.end(), message.token_ids().begin(),
                                  message.token_ids().end());
      if (message.has_usage()) sent.cached = message.usage().cached_tokens();
      return true;
    }));
    earlier_.push_back(conversation.context);
    conversation.next = Random(agents_ ? From(50, 400) : From(10, 120));
    --conversation.turns_left;
    return absl::OkStatus();
  }

  absl::StatusOr<v1::GenerateRequest> RequestOf(Conversation& conversation) {
    v1::GenerateRequest request;
    if (sessions_ && conversation.session.empty()) {
      RIVULET_ASSIGN_OR_RETURN(const v1::Session session, client_.CreateSession({}));
      conversation.session = session.id();
    }
    request.set_session_id(conversation.session);
    Tokens prompt = sessions_ ? Tokens() : conversation.context;
    Append(prompt, conversation.next);
    request.mutable_token_ids()->mutable_ids()->Add(prompt.begin(), prompt.end());
    request.set_max_tokens(static_cast<uint32_t>(agents_ ? From(30, 90) : From(30, 100)));
    request.mutable_sampling()->set_temperature(0);
    request.mutable_stop()->set_ignore_eos(true);
    return request;
  }

  void NoteFound(const Tokens& prompt) {
    uint64_t longest = 0;
    for (const Tokens& context : earlier_) {
      const auto parts =
          std::mismatch(context.begin(), context.end(), prompt.begin(), prompt.end());
      longest = std::max<uint64_t>(longest, static_cast<uint64_t>(parts.second - prompt.begin()));
    }
    longest = std::min<uint64_t>(longest, prompt.size() - 1);
    for (size_t i = 0; i < std::size(kBlocks); ++i) found_[i] += longest / kBlocks[i] * kBlocks[i];
  }

  void Report(double seconds) {
    uint64_t prompt = 0, cached = 0;
    std::vector<double> times;
    for (const Sent& sent : sent_) {
      prompt += sent.prompt;
      cached += sent.cached;
      times.push_back(1e3 * sent.first_token);
    }
    const auto percent = [&](uint64_t tokens) {
      return 100.0 * static_cast<double>(tokens) / static_cast<double>(prompt);
    };
    std::printf(
        "| trace | mode | requests | context tokens | reused | first token, ms: p50 | p90 | "
        "p99 | seconds |\n|---|---|---|---|---|---|---|---|---|\n");
    std::printf("| %s | %s | %zu | %lu | %.1f %% | %.0f | %.0f | %.0f | %.1f |\n",
                agents_ ? "agents" : "chats", sessions_ ? "session" : "resend", sent_.size(),
                static_cast<unsigned long>(prompt), percent(cached), Percentile(times, 0.5),
                Percentile(times, 0.9), Percentile(times, 0.99), seconds);
    for (size_t i = 0; i < std::size(kBlocks); ++i) {
      std::printf("blocks of %lu would have found %.1f %%\n",
                  static_cast<unsigned long>(kBlocks[i]), percent(found_[i]));
    }
  }

  Client client_;
  const bool agents_, sessions_;
  std::mt19937_64 random_;
  uint32_t vocab_ = 0;
  std::vector<Conversation> conversations_;
  std::vector<Tokens> earlier_;  // contexts after each request
  std::vector<Sent> sent_;
  uint64_t found_[std::size(kBlocks)] = {};
};

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("what a server reuses of prompts that begin alike");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = rivulet::Bench().Run();
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
