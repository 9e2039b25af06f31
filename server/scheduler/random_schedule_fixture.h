// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What scheduler_random_test.cc knows of the sessions and requests of a random schedule.
#ifndef RIVULET_SERVER_SCHEDULER_RANDOM_SCHEDULE_FIXTURE_H_
#define RIVULET_SERVER_SCHEDULER_RANDOM_SCHEDULE_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "server/drafts/drafter.h"
#include "server/scheduler/test_support.h"

namespace rivulet {

inline constexpr uint32_t kEos = 3;     // the first id that ends a turn
inline constexpr size_t kCapacity = 8;  // tokens of an outbox

// Drafts what FakeEngine will sample, and now and then something else. Some completions get no
// drafts: only those run ahead.
class FakeOracleSource final : public DrafterSource {
 public:
  explicit FakeOracleSource(uint64_t seed) : random_(seed) {}
  std::unique_ptr<Drafter> MakeDrafter(const DraftedCompletion& completion) override {
    if (random_() % 4 == 0) return nullptr;
    return std::make_unique<Oracle>(random_, completion.index);
  }

 private:
  class Oracle final : public Drafter {
   public:
    Oracle(std::mt19937_64& random, uint32_t index) : random_(random), index_(index) {}
    DraftSource source() const override { return DraftSource::kModel; }
    // Reads the tokens: those of a completion that has ended are not there any more.
    void Follow(const TokenSequence& tokens) override {
      RIVULET_CHECK(tokens.size() >= followed_, "a session has lost tokens");
      followed_ = tokens.size();
    }
    size_t Outlook(const TokenSequence& /*tokens*/, std::span<float> chances) override {
      const size_t count = random_() % (chances.size() + 1);
      for (float& chance : chances) chance = static_cast<float>(random_() % 100) / 100;
      return count;
    }
    void Draft(const TokenSequence& tokens, size_t count, std::vector<uint32_t>& drafts) override {
      std::vector<uint32_t> right = ExpectedTokens(tokens.Copy(), index_, count);
      for (uint32_t& token : right) {
        if (random_() % 6 == 0) token = static_cast<uint32_t>(random_() % FakeEngine::kVocab);
      }
      drafts.insert(drafts.end(), right.begin(), right.end());
    }
    double hit_rate() const override { return static_cast<double>(random_() % 100) / 100; }

   private:
    std::mt19937_64& random_;
    const uint32_t index_;
    uint64_t followed_ = 0;
  };

  std::mt19937_64 random_;
};

// What the test knows of a session.
struct ModelSession {
  std::vector<uint32_t> tokens;
  bool holds_state = false;
  bool in_turn = false;
  bool reading = false;
  TimePoint last_used;
  size_t cached_least = 0, cached_most = 0;  // what its state holds of its tokens
  bool busy() const { return in_turn || reading; }
};

// What the test knows of a request.
struct Modelled {
  explicit Modelled(uint32_t completions) : client(completions, kCapacity) {}
  Client client;
  uint64_t id = 0;
  std::string session;  // empty: none
  bool is_turn = false;
  std::vector<uint32_t> context;  // of the session, before
  std::vector<uint32_t> prompt;
  size_t cached_least = 0, cached_most = 0;
  uint32_t eos_ids = 1;  // from kEos on
  uint32_t max_tokens = 0;
  uint32_t min_tokens = 0;
  bool scored = false;
  bool cancelled = false;
  TimePoint deadline = kNoDeadline;
  bool reads = true;
  // What its turn left in the session: tokens generated, -1 for a session that is as it was
  // before, -2 for one that is gone.
  std::optional<int> left;

  std::vector<uint32_t> Whole() const {
    std::vector<uint32_t> whole = context;
    whole.insert(whole.end(), prompt.begin(), prompt.end());
    return whole;
  }
  bool IsEos(uint32_t token) const { return token >= kEos && token < kEos + eos_ids; }
  // The whole completion if nothing ends it early, by the rules of the API.
  std::vector<uint32_t> Full(uint32_t index) const {
    std::vector<uint32_t> tokens = ExpectedTokens(Whole(), index, max_tokens);
    for (size_t i = min_tokens; i < tokens.size(); ++i) {
      if (IsEos(tokens[i])) tokens.resize(i + 1);
    }
    return tokens;
  }
  std::vector<float> Scores() const {
    std::vector<float> scores;
    std::vector<uint32_t> before = context;
    for (const uint32_t token : prompt) {
      if (!before.empty()) scores.push_back(ExpectedScore(before, token));
      before.push_back(token);
    }
    return scores;
  }
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_RANDOM_SCHEDULE_FIXTURE_H_
