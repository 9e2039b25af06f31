// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// For tests: everything that reuses states, at once and in random order. Prompts of a random tree,
// alone and on sessions, with one or several completions, with and without salts; forks, rewinds
// and deletions; some calls are cancelled. Each answer is compared with that of a second stack,
// which has its whole context as one prompt and reuses nothing.
#ifndef RIVULET_SERVER_SCHEDULER_REUSE_SCHEDULE_FIXTURE_H_
#define RIVULET_SERVER_SCHEDULER_REUSE_SCHEDULE_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/scheduler/stack_fixture.h"

namespace rivulet {

class ReuseSchedule {
 public:
  using Tokens = std::vector<uint32_t>;

  // Both outlive it. Prompts have ids below `vocab`.
  ReuseSchedule(Stack& stack, Stack& plain, uint32_t vocab, uint64_t seed)
      : stack_(stack), plain_(plain), vocab_(vocab), random_(seed) {}

  // Some calls at once, run to their end and compared, and then a fork, a rewind or a deletion.
  void Round() {
    for (uint64_t i = 1 + Below(4); i > 0; --i) Send();
    RunAll();
    for (Sent& sent : sent_) {
      Check(sent);
      if (testing::Test::HasFatalFailure()) return;
    }
    calls_ += sent_.size();
    sent_.clear();
    stack_.ForgetClients();
    plain_.ForgetClients();
    ForgetDropped();
    if (!sessions_.empty()) ChangeSome();
  }

  void CheckNothingIsLeft() {
    for (const auto& [id, tokens] : sessions_) EXPECT_TRUE(stack_.sessions().Delete(id).ok());
    sessions_.clear();
    stack_.ForgetPrefixes();
    stack_.Reap();
    StatePool& states = stack_.states();
    EXPECT_EQ(states.bases().used() + states.tails().used(), 0u);
    for (size_t kind = 0; kind < states.capacity().pages.size(); ++kind) {
      EXPECT_EQ(states.pages(kind).used(), 0u);
    }
    EXPECT_EQ(stack_.sessions().tokens(), 0u);
    const Metrics& metrics = stack_.metrics();
    EXPECT_EQ(metrics.requests_running.value() + metrics.requests_waiting.value(), 0);
    EXPECT_EQ(metrics.prefix_states.value() + metrics.prefix_bytes.value(), 0);
  }

  uint64_t calls() const { return calls_; }
  std::string Report() const {
    const Metrics& m = stack_.metrics();
    uint64_t drafted = 0, accepted = 0;
    for (const Counter& source : m.draft_tokens) drafted += source.value();
    for (const Counter& source : m.accepted_draft_tokens) accepted += source.value();
    uint64_t evicted = 0;
    for (const Counter& reason : m.prefix_drops) evicted += reason.value();
    const auto missed = [&m](PrefixMiss why) {
      return m.prefix_misses[static_cast<size_t>(why)].value();
    };
    return absl::StrCat(
        calls_, " calls, ", forks_, " forks, ", rewinds_, " rewinds, ", m.prefix_hits.value(),
        " hits (else ", missed(PrefixMiss::kContinues), " went on, ", missed(PrefixMiss::kShort),
        " short, ", missed(PrefixMiss::kUnknown), " unknown, ", missed(PrefixMiss::kNotKept),
        " not kept), ", evicted, " evictions, ", m.prefix_tokens_reused.value(), " tokens reused, ",
        accepted, " of ", drafted, " drafts right, ", dropped_, " sessions dropped");
  }

 private:
  struct Sent {
    Client* client;
    Ask ask;
    Tokens context;       // of the session before it
    std::string session;  // empty: none
    bool cancelled = false;
  };

  uint64_t Below(uint64_t limit) { return random_() % limit; }

  // A beginning of an earlier context, often at a border or next to one, and something new.
  Tokens Prompt() {
    Tokens tokens;
    if (!contexts_.empty() && Below(6) != 0) {
      tokens = contexts_[Below(contexts_.size())];
      size_t shared = Below(tokens.size() + 1);
      if (Below(2) == 0) shared = std::min(tokens.size(), (shared + 8) / 16 * 16 + Below(3));
      tokens.resize(shared);
    }
    for (uint64_t i = Below(50) + (tokens.empty() ? 1 : 0); i > 0; --i) {
      tokens.push_back(static_cast<uint32_t>(Below(vocab_)));
    }
    return tokens;
  }

  Ask AnyAsk() {
    Ask ask;
    ask.prompt = Prompt();
    ask.max_tokens = static_cast<uint32_t>(Below(24));
    ask.sampling.seed = random_();
    // Greedy text soon repeats itself, so that look-up guesses right.
    const bool greedy = Below(3) == 0;
    ask.sampling.temperature = greedy ? 0.0f : 1.0f;
    ask.sampling.repetition_penalty = greedy ? 1.0f : 1.1f;
    ask.logprobs = 2;
    ask.stop.ignore_eos = true;
    if (Below(6) == 0) ask.completions = 2;
    if (Below(6) == 0) ask.cache_salt = "another tenant";
    return ask;
  }

  void Send() {
    Ask ask = AnyAsk();
    if (Below(2) == 0) return void(sent_.push_back({&stack_.Submit(ask), ask, {}, ""}));
    const bool begins = sessions_.size() < 3 || (sessions_.size() < 6 && Below(4) == 0);
    const std::string id = begins ? stack_.sessions().Create("", "")->id : AnySession();
    auto lease = stack_.sessions().LeaseForTurn(id);
    if (!lease.ok()) return;  // a turn of it was sent already
    Tokens context = sessions_[id];
    if (!context.empty()) ask.prompt.resize(std::min<size_t>(ask.prompt.size(), Below(30)));
    if (ask.prompt.empty()) ask.max_tokens = std::max(1u, ask.max_tokens);
    ask.keep_choices = ask.completions > 1 && Below(2) == 0;
    sent_.push_back({&stack_.Submit(ask, *std::move(lease)), ask, std::move(context), id});
  }

  void RunAll() {
    while (stack_.Step()) {
      if (sent_.empty() || Below(60) != 0) continue;
      Sent& one = *std::next(sent_.begin(), static_cast<ptrdiff_t>(Below(sent_.size())));
      if (one.client->end.has_value()) continue;
      stack_.Cancel(*one.client);
      one.cancelled = true;
    }
  }

  void Check(Sent& sent) {
    sent.client->Read();
    ASSERT_TRUE(sent.client->end.has_value()) << "it waits for ever";
    if (sent.cancelled) return LearnCancelled(sent);
    ASSERT_EQ(*sent.client->end, absl::OkStatus());
    Ask whole = sent.ask;
    whole.keep_choices = false;
    whole.prompt = sent.context;
    whole.prompt.insert(whole.prompt.end(), sent.ask.prompt.begin(), sent.ask.prompt.end());
    const std::vector<Received> expected = plain_.Run(whole).received;
    for (uint32_t i = 0; i < whole.completions; ++i) {
      const Received& got = sent.client->received[i];
      ExpectSame(got, expected[i]);
      if (testing::Test::HasFatalFailure()) return;
      Tokens tokens = whole.prompt;
      tokens.insert(tokens.end(), got.tokens.begin(), got.tokens.end());
      Learn(tokens);
      const std::string& id = i == 0 ? sent.session : got.fork_id;
      if (!id.empty()) sessions_[id] = std::move(tokens);
    }
  }

  void Learn(const Tokens& tokens) {
    if (contexts_.size() < 30) {
      contexts_.push_back(tokens);
    } else {
      contexts_[Below(contexts_.size())] = tokens;
    }
  }

  // What a cancelled turn has left: what it was before, or all that was sent.
  void LearnCancelled(const Sent& sent) {
    for (size_t i = 0; i < sent.client->received.size(); ++i) {
      const Received& got = sent.client->received[i];
      const std::string& id = i == 0 ? sent.session : got.fork_id;
      if (id.empty() || !stack_.sessions().Get(id).ok()) continue;
      const uint64_t now = stack_.sessions().Get(id)->tokens;
      Tokens all = sent.context;
      if (i > 0 || now != all.size()) {
        all.insert(all.end(), sent.ask.prompt.begin(), sent.ask.prompt.end());
        all.insert(all.end(), got.tokens.begin(), got.tokens.end());
      }
      ASSERT_EQ(now, all.size());
      if (now > 0) {
        ASSERT_EQ(stack_.TokensOf(id), all);
      }
      sessions_[id] = std::move(all);
    }
  }

  std::string AnySession() {
    return std::next(sessions_.begin(), static_cast<ptrdiff_t>(Below(sessions_.size())))->first;
  }

  void ForgetDropped() {
    dropped_ += std::erase_if(
        sessions_, [&](const auto& entry) { return !stack_.sessions().Get(entry.first).ok(); });
  }

  void ChangeSome() {
    const std::string id = AnySession();
    Tokens tokens = sessions_.at(id);
    const uint64_t position = Below(tokens.size() + 1);
    const uint64_t what = Below(3);
    if (what == 0) {
      const auto fork = stack_.sessions().Fork(id, "", "", position);
      if (!fork.ok()) return;  // before the oldest kept position
      ++forks_;
      tokens.resize(position);
      sessions_[fork->id] = std::move(tokens);
    } else if (what == 1) {
      if (!stack_.sessions().Rewind(id, position).ok()) return;
      ++rewinds_;
      sessions_.at(id).resize(position);
    } else if (sessions_.size() > 6) {
      EXPECT_TRUE(stack_.sessions().Delete(id).ok());
      sessions_.erase(id);
    }
  }

  Stack& stack_;
  Stack& plain_;
  const uint32_t vocab_;
  std::mt19937_64 random_;
  std::map<std::string, Tokens> sessions_;
  std::vector<Tokens> contexts_;  // that were answered
  std::list<Sent> sent_;
  uint64_t calls_ = 0, forks_ = 0, rewinds_ = 0, dropped_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_REUSE_SCHEDULE_FIXTURE_H_
