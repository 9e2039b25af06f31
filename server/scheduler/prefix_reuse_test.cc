// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Which borders are kept, who waits for whom, and what goes when slots are needed.
#include "server/scheduler/prefix_reuse.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/log/log.h"
#include "server/scheduler/scheduler_fixture.h"

namespace rivulet {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kUnlimited = uint64_t{1} << 40;

std::vector<uint32_t> Tokens(size_t count, uint32_t first = 0) {
  std::vector<uint32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<uint32_t>((first + i * 7 + i / 16) % FakeEngine::kVocab);
  }
  return tokens;
}

std::vector<uint32_t> Joined(std::vector<uint32_t> tokens, const std::vector<uint32_t>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

class PrefixReuseTest : public SchedulerFixture<std::unique_ptr<FakeEngine>> {
 protected:
  void SetUp() override {
    SetLogLevel("error");
    step_time_ = milliseconds(1);
    Start(64, kUnlimited);
  }
  void TearDown() override {
    SchedulerFixture::TearDown();
    SetLogLevel("info");
  }

  void Start(uint32_t sessions, uint64_t cache_bytes) {
    scheduler_ = nullptr;
    engine_ = std::make_unique<FakeEngine>(sessions, std::vector<PageKind>{}, 100000);
    SchedulerOptions options;
    options.prefix_cache.bytes = cache_bytes;
    MakeScheduler(options);
  }

  Client& Send(
      std::vector<uint32_t> prompt, uint32_t max_tokens = 3,
      const std::function<void(Request&)>& change = [](Request&) {}) {
    Client& client = clients_.emplace_back(1);
    auto request = MakeRequest(client, std::move(prompt), max_tokens);
    request->stop.ignore_eos = true;
    client.id = request->id;
    change(*request);
    EXPECT_TRUE(scheduler_->Submit(request).ok());
    return client;
  }

  uint32_t CachedOf(const std::vector<uint32_t>& prompt) {
    Client& client = Send(prompt);
    RunAll();
    EXPECT_EQ(client.end, absl::OkStatus());
    EXPECT_EQ(client.tokens(), ExpectedTokens(prompt, 0, 3));
    return client.received[0].usage.cached_tokens;
  }
  uint64_t computed() const { return metrics_.prompt_tokens_computed.value(); }
};

TEST_F(PrefixReuseTest, TheSamePromptStartsAtItsLastBorder) {
  EXPECT_EQ(CachedOf(Tokens(100)), 0u);
  EXPECT_EQ(CachedOf(Tokens(100)), 96u);
  // One token has to be left to compute.
  EXPECT_EQ(CachedOf(Tokens(128, 5)), 0u);
  EXPECT_EQ(CachedOf(Tokens(128, 5)), 112u);
  EXPECT_EQ(CachedOf(Tokens(16, 9)), 0u);
  EXPECT_EQ(CachedOf(Tokens(16, 9)), 0u);
  EXPECT_EQ(CachedOf(Tokens(17, 11)), 0u);
  EXPECT_EQ(CachedOf(Tokens(17, 11)), 16u);
}

TEST_F(PrefixReuseTest, TheNextTurnStartsAtTheEndOfTheLast) {
  const auto prompt = Tokens(50);
  Client& first = Send(prompt, 40);
  RunAll();
  auto context = Joined(prompt, first.tokens());
  EXPECT_EQ(CachedOf(Joined(context, Tokens(20, 3))), 80u);  // 89 are in the state
}

// What two contexts share is kept when the second one comes, and the third starts there.
TEST_F(PrefixReuseTest, SharedBeginningsOf17TokensAreFound) {
  for (const size_t shared : {17, 31, 32, 100, 1000}) {
    const auto beginning = Tokens(shared, static_cast<uint32_t>(shared));
    CachedOf(Joined(beginning, {1, 2, 3}));
    CachedOf(Joined(beginning, Tokens(40, 50)));
    EXPECT_EQ(CachedOf(Joined(beginning, Tokens(40, 60))), shared / 16 * 16) << shared;
  }
}

TEST_F(PrefixReuseTest, LongPromptsKeepASeries) {
  CachedOf(Tokens(9000));
  EXPECT_THAT(metrics_.prefix_states.value(), testing::Ge(5));
  auto other = Tokens(9000);
  other[5000] ^= 1;
  EXPECT_EQ(CachedOf(other), 4096u);
  other[5001] ^= 1;
  EXPECT_EQ(CachedOf(other), 4992u) << "where the last two parted";
}

TEST_F(PrefixReuseTest, SaltsShareNothing) {
  const auto salted = [](Request& request) { request.cache_salt = "a"; };
  CachedOf(Tokens(100));
  Client& first = Send(Tokens(100), 3, salted);
  RunAll();
  EXPECT_EQ(first.received[0].usage.cached_tokens, 0u);
  Client& second = Send(Tokens(100), 3, salted);
  RunAll();
  EXPECT_EQ(second.received[0].usage.cached_tokens, 96u);
}

TEST_F(PrefixReuseTest, WhatIsForgottenIsNotFound) {
  EXPECT_EQ(CachedOf(Tokens(100)), 0u);
  EXPECT_EQ(CachedOf(Tokens(100)), 96u);
  scheduler_->ForgetPrefixesOf("another");
  EXPECT_EQ(CachedOf(Tokens(100)), 96u);
  scheduler_->ForgetPrefixesOf("");
  EXPECT_EQ(CachedOf(Tokens(100)), 0u);
  EXPECT_EQ(CachedOf(Tokens(100)), 96u);
  // Also by a request that was sent before and did not run.
  Client& waiting = Send(Tokens(100));
  scheduler_->ForgetPrefixesOf("");
  RunAll();
  EXPECT_EQ(waiting.received[0].usage.cached_tokens, 0u);
}

TEST_F(PrefixReuseTest, WhatARunningRequestHasLeftIsForgotten) {
  Send(Tokens(100), 100);
  while (scheduler_->prefix_cache().states() == 0) ASSERT_TRUE(Step());
  scheduler_->ForgetPrefixesOf("");
  Step();
  EXPECT_EQ(scheduler_->prefix_cache().states(), 0u);
  RunAll();
}

TEST_F(PrefixReuseTest, SaysWhyNothingWasFound) {
  const auto miss = [this](std::vector<uint32_t> prompt, bool scores = false) {
    Client& client = Send(std::move(prompt), 3, [=](Request& r) { r.score_prompt = scores; });
    RunAll();
    return client.received[0].usage.prefix_miss;
  };
  EXPECT_EQ(miss(Tokens(100)), PrefixMiss::kUnknown);
  EXPECT_EQ(miss(Tokens(100)), PrefixMiss::kNone);
  EXPECT_EQ(miss(Tokens(100), true), PrefixMiss::kPromptLogprobs);
  EXPECT_EQ(miss(Tokens(16, 30)), PrefixMiss::kShort);
  EXPECT_EQ(miss(Tokens(40)), PrefixMiss::kNotKept);
  Start(64, 0);
  EXPECT_EQ(miss(Tokens(100)), PrefixMiss::kOff);
  const auto missed = [this](PrefixMiss why) {
    return metrics_.prefix_misses[static_cast<size_t>(why)].value();
  };
  EXPECT_EQ(missed(PrefixMiss::kUnknown), 1u);
  EXPECT_EQ(missed(PrefixMiss::kNotKept), 1u);
  EXPECT_EQ(metrics_.prefix_hits.value(), 1u);
}

TEST_F(PrefixReuseTest, AFirstTurnStartsFromAState) {
  CachedOf(Tokens(100));
  const std::string id = sessions_.Create("", "")->id;
  const auto turn = [&](std::vector<uint32_t> prompt) {
    Client& client = Send(std::move(prompt), 3,
                          [&](Request& request) { request.session = *sessions_.LeaseForTurn(id); });
    RunAll();
    return client.received[0].usage;
  };
  EXPECT_EQ(turn(Tokens(100)).cached_tokens, 96u);
  const Usage second = turn(Tokens(100));
  EXPECT_EQ(second.cached_tokens, 102u);
  EXPECT_EQ(second.prefix_miss, PrefixMiss::kContinues);
  EXPECT_EQ(sessions_.Get(id)->tokens, 206u);
}

// A chat template that rewrites earlier turns.
TEST_F(PrefixReuseTest, ATurnThatBeginsAnewStartsFromWhatItShares) {
  class Messages : public SessionNotes {
    size_t bytes() const override { return 8; }
  };
  const std::string id = sessions_.Create("", "")->id;
  const auto turn = [&](const std::vector<uint32_t>& prompt, bool anew) {
    Client& client = Send(prompt, 3, [&](Request& request) {
      request.session = *sessions_.LeaseForTurn(id);
      request.begins_anew = anew;
      request.notes = std::make_shared<Messages>();
    });
    RunAll();
    EXPECT_EQ(client.end, absl::OkStatus());
    return client.received[0].usage.cached_tokens;
  };
  turn(Tokens(100), false);
  turn(Tokens(100, 3), false);  // 203 tokens
  const auto whole = Joined(Tokens(100), ExpectedTokens(Tokens(100), 0, 3));
  EXPECT_EQ(turn(Joined(Joined(whole, Tokens(100, 3)), Tokens(50, 8)), true), 192u);
  EXPECT_EQ(turn(Joined(Tokens(100), Tokens(70, 8)), true), 96u);
  EXPECT_EQ(sessions_.Get(id)->tokens, 173u);
}

// ---- At once.

TEST_F(PrefixReuseTest, PromptsThatComeTogetherAreComputedOnce) {
  for (int i = 0; i < 64; ++i) Send(Tokens(4096));
  RunAll();
  for (const Client& client : clients_) {
    EXPECT_EQ(client.end, absl::OkStatus());
    EXPECT_EQ(client.tokens(), ExpectedTokens(Tokens(4096), 0, 3));
  }
  EXPECT_EQ(computed(), 4096u + 63 * 16);
  EXPECT_EQ(metrics_.prefix_waits.value(), 63u);
}

TEST_F(PrefixReuseTest, SoAreTheirSharedBeginnings) {
  for (uint32_t i = 0; i < 64; ++i) Send(Joined(Tokens(4090), {i, 1, 2, 3, 4, 5, 6, 7}));
  RunAll();
  EXPECT_EQ(computed(), 4098u + 63 * 18);  // from 4080 on
  for (uint32_t i = 0; i < 64; ++i) {
    const auto prompt = Joined(Tokens(4090), {i, 1, 2, 3, 4, 5, 6, 7});
    EXPECT_EQ(clients_[i].tokens(), ExpectedTokens(prompt, 0, 3));
  }
}

TEST_F(PrefixReuseTest, OneThatComesLaterWaitsForTheRest) {
  Send(Tokens(4096));
  while (computed() < 2000) Step();
  Send(Joined(Tokens(3000), {1}));
  RunAll();
  EXPECT_EQ(clients_[1].received[0].usage.cached_tokens, 2992u);
  EXPECT_EQ(computed(), 4096u + 9);
}

TEST_F(PrefixReuseTest, SaltsDoNotWaitForEachOther) {
  Send(Tokens(1000));
  Send(Tokens(1000), 3, [](Request& request) { request.cache_salt = "a"; });
  RunAll();
  EXPECT_EQ(computed(), 2000u);
  EXPECT_EQ(metrics_.prefix_waits.value(), 0u);
}

// The next one goes on from where it was.
TEST_F(PrefixReuseTest, WhenTheFirstIsCancelledTheNextOneGoesOn) {
  for (int i = 0; i < 5; ++i) Send(Tokens(4096));
  while (computed() < 2000) Step();
  const uint64_t until_then = computed();
  scheduler_->Cancel(clients_[0].id);
  RunAll();
  EXPECT_TRUE(absl::IsCancelled(*clients_[0].end));
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(clients_[i].tokens(), ExpectedTokens(Tokens(4096), 0, 3)) << i;
  }
  EXPECT_EQ(computed(), 4096u + until_then % 16 + 3 * 16);
}

TEST_F(PrefixReuseTest, WhenTheFirstFailsTheNextOneBeginsAgain) {
  for (int i = 0; i < 5; ++i) Send(Tokens(4096));
  while (computed() < 2000) Step();
  engine_->fail_row = [](const StepRow&) { return absl::InternalError("injected"); };
  Step();
  engine_->fail_row = nullptr;
  RunAll();
  EXPECT_EQ(*clients_[0].end, absl::InternalError("injected"));
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(clients_[i].tokens(), ExpectedTokens(Tokens(4096), 0, 3)) << i;
  }
}

TEST_F(PrefixReuseTest, WhoWaitsKeepsItsDeadlineAndCanBeCancelled) {
  for (int i = 0; i < 4; ++i) {
    Send(Tokens(4096), 3, [&](Request& request) {
      if (i == 1) request.deadline = now_ + milliseconds(3);
    });
  }
  for (int i = 0; i < 5; ++i) Step();
  ASSERT_LT(computed(), 4096u);
  clients_[1].Read();
  EXPECT_TRUE(absl::IsDeadlineExceeded(*clients_[1].end));
  scheduler_->Cancel(clients_[2].id);
  Step();
  clients_[2].Read();
  EXPECT_TRUE(absl::IsCancelled(*clients_[2].end));
  RunAll();
  EXPECT_EQ(clients_[3].received[0].usage.cached_tokens, 4080u);
}

TEST_F(PrefixReuseTest, WhoWaitsDoesNotHoldUpOthers) {
  Send(Tokens(4096));
  Send(Tokens(4096));
  Client& other = Send(Tokens(40, 50));
  while (computed() < 1000) Step();
  other.Read();
  EXPECT_EQ(other.tokens(), ExpectedTokens(Tokens(40, 50), 0, 3));
  RunAll();
}

// All at once cancelled, in a queue that has to empty itself.
TEST_F(PrefixReuseTest, AllCanEndWhileTheyWait) {
  for (int i = 0; i < 20; ++i) Send(Tokens(4096));
  for (int i = 0; i < 3; ++i) Step();
  scheduler_->AbortAll(absl::UnavailableError("drained"));
  RunAll();
  for (const Client& client : clients_) EXPECT_TRUE(absl::IsUnavailable(*client.end));
  EXPECT_TRUE(scheduler_->WaitUntilIdle(TimePoint()));
}

// ---- Slots.

TEST_F(PrefixReuseTest, StatesGoBeforeAnythingElse) {
  Start(4, kUnlimited);  // five bases
  const std::string id = sessions_.Create("", "")->id;
  Send(Tokens(40), 3, [&](Request& request) { request.session = *sessions_.LeaseForTurn(id); });
  RunAll();
  for (uint32_t i = 1; i < 10; ++i) CachedOf(Tokens(100, i));
  EXPECT_LE(engine_->states().bases().used(), 5u);
  EXPECT_GT(scheduler_->prefix_cache().states(), 0u);
  for (uint32_t i = 1; i < 4; ++i) Send(Tokens(60, 50 + i), 30);
  RunAll();
  EXPECT_TRUE(sessions_.Get(id)->holds_state) << "an idle session was dropped for the cache";
  EXPECT_GT(metrics_.prefix_drops[static_cast<size_t>(PrefixDrop::kSlots)].value(), 0u);
  for (const Client& client : clients_) EXPECT_EQ(client.end, absl::OkStatus());
}

TEST_F(PrefixReuseTest, RunsWithOneSlot) {
  Start(1, kUnlimited);  // two bases
  for (int i = 0; i < 3; ++i) {
    for (uint32_t which = 0; which < 3; ++which) Send(Tokens(100, which), 20);
  }
  RunAll();
  for (size_t i = 0; i < clients_.size(); ++i) {
    EXPECT_EQ(clients_[i].tokens(), ExpectedTokens(Tokens(100, i % 3), 0, 20));
  }
}

TEST_F(PrefixReuseTest, KeepsToItsSize) {
  Start(64, 10 * engine_->capacity().base_bytes);
  for (uint32_t i = 0; i < 40; ++i) {
    CachedOf(Tokens(100, i));
    EXPECT_LE(scheduler_->prefix_cache().states(), 10u);
  }
  EXPECT_EQ(scheduler_->prefix_cache().states(), 10u);
  EXPECT_GT(metrics_.prefix_drops[static_cast<size_t>(PrefixDrop::kSize)].value(), 0u);
}

TEST_F(PrefixReuseTest, ForgetsEverythingWhenMemoryRunsOut) {
  Send(Tokens(4096));
  Send(Tokens(4096));
  for (int i = 0; i < 3; ++i) Step();
  scheduler_->OutOfMemory(now_);
  EXPECT_EQ(scheduler_->prefix_cache().tokens(), 0u);
  EXPECT_EQ(engine_->states().bases().used(), 0u);
  EXPECT_EQ(CachedOf(Tokens(4096)), 0u);
}

}  // namespace
}  // namespace rivulet
