// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How the scheduler treats the requests of tenants that share it.
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduler/scheduler_fixture.h"
#include "server/security/tenant.h"

namespace rivulet {
namespace {

class SchedulerTenantsTest : public SchedulerFixture<std::unique_ptr<FakeEngine>> {
 protected:
  void Start(uint32_t slots, uint32_t max_queue) {
    scheduler_ = nullptr;  // before the engine that it uses
    clients_.clear();
    engine_ = std::make_unique<FakeEngine>(slots);
    SchedulerOptions options;
    options.max_queue = max_queue;
    options.prefix_cache.bytes = prefix_bytes_;
    options.max_session_tokens = max_session_tokens_;
    MakeScheduler(options);
  }

  // Null: refused.
  Client* Submit(const std::shared_ptr<Tenant>& tenant, uint32_t max_tokens, uint32_t prompt = 1) {
    Client& client = clients_.emplace_back(1, 4096);
    auto request = MakeRequest(client, std::vector<uint32_t>(prompt, 1), max_tokens);
    request->tenant = tenant;
    request->stop.ignore_eos = true;
    return scheduler_->Submit(request).ok() ? &client : nullptr;
  }

  // A turn of a session, which is made for it if need be; or, without an id, a prompt. Returns how
  // many tokens were cached.
  uint32_t Run(const std::shared_ptr<Tenant>& tenant, const std::string& id,
               std::vector<uint32_t> prompt) {
    Client& client = clients_.emplace_back(1, 4096);
    auto request = MakeRequest(client, std::move(prompt), 1);
    request->tenant = tenant;
    request->stop.ignore_eos = true;
    request->cache_salt = SaltOf(tenant->name(), "");
    if (!id.empty()) {
      const SessionKey key(tenant->name(), id);
      (void)sessions_.Create(key, "");
      auto lease = sessions_.LeaseForTurn(key);
      EXPECT_TRUE(lease.ok()) << lease.status();
      if (lease.ok()) request->session = *std::move(lease);
    }
    EXPECT_TRUE(scheduler_->Submit(request).ok());
    while (Step()) continue;
    EXPECT_EQ(client.end, absl::OkStatus());
    return client.received[0].usage.cached_tokens;
  }

  // A step of n rows takes 1 + n / 10 seconds.
  bool Step() {
    const StepPlan& plan = scheduler_->Plan(now_);
    if (plan.empty()) return false;
    const double seconds = 1 + 0.1 * static_cast<double>(plan.tokens.size());
    StepResult result = engine_->Step(plan);
    result.device_seconds = seconds;
    now_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    scheduler_->Commit(std::move(result), now_);
    ReadAll();
    return true;
  }
  static size_t Tokens(const Client* client) { return client->received[0].tokens.size(); }
  bool Started(const Client* client) { return Tokens(client) > 0; }

  // How many tokens a stream of blue gets in so much time.
  size_t TokensOfBlueIn(double seconds) {
    const Client* const client = Submit(blue_, 100'000);
    const TimePoint end =
        now_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    while (now_ < end) EXPECT_TRUE(Step());
    return Tokens(client);
  }

  const std::shared_ptr<Tenant> red_ = std::make_shared<Tenant>("red");
  const std::shared_ptr<Tenant> blue_ = std::make_shared<Tenant>("blue");
  uint64_t prefix_bytes_ = 0;
  uint64_t max_session_tokens_ = SchedulerOptions().max_session_tokens;
};

TEST_F(SchedulerTenantsTest, AThousandStreamsLeaveOneOfAnotherAThirdOfItsSpeed) {
  Start(2000, 2000);
  const size_t alone = TokensOfBlueIn(1000);
  EXPECT_GT(alone, 800u);
  Start(2000, 2000);
  for (int i = 0; i < 1000; ++i) ASSERT_NE(Submit(red_, 100'000), nullptr);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(Step());
  const size_t beside = TokensOfBlueIn(1000);
  // Half, but for the time until its first token and for estimates.
  EXPECT_GT(3 * beside, alone);
  size_t red = 0;
  for (size_t i = 0; i < 1000; ++i) red += Tokens(&clients_[i]);
  EXPECT_GT(red, 5 * beside) << "the steps are filled";
}

TEST_F(SchedulerTenantsTest, AnEighthOfTheSlotsIsForTenantsThatHaveLess) {
  Start(/*slots=*/16, /*max_queue=*/100);
  for (int i = 0; i < 40; ++i) Submit(red_, 100'000);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(Step());
  EXPECT_EQ(metrics_.requests_running.value(), 14);
  const Client* const first = Submit(blue_, 100'000);
  const Client* const second = Submit(blue_, 100'000);
  const Client* const third = Submit(blue_, 100'000);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(Step());
  EXPECT_TRUE(Started(first));
  EXPECT_TRUE(Started(second));
  EXPECT_FALSE(Started(third));
}

TEST_F(SchedulerTenantsTest, ASingleTenantWithoutANameUsesAllSlots) {
  Start(/*slots=*/16, /*max_queue=*/100);
  const auto anyone = std::make_shared<Tenant>("");
  for (int i = 0; i < 40; ++i) Submit(anyone, 100'000);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(Step());
  EXPECT_EQ(metrics_.requests_running.value(), 16);
}

TEST_F(SchedulerTenantsTest, AFullQueueHasRoomForTenantsThatHaveLess) {
  Start(/*slots=*/8, /*max_queue=*/16);
  for (int i = 0; i < 16; ++i) ASSERT_NE(Submit(red_, 10, 2000), nullptr);
  EXPECT_EQ(Submit(red_, 10), nullptr);
  EXPECT_FALSE(scheduler_->CheckOpen(red_.get()).ok());
  EXPECT_TRUE(scheduler_->CheckOpen(blue_.get()).ok());
  EXPECT_NE(Submit(blue_, 10), nullptr);
  EXPECT_NE(Submit(blue_, 10), nullptr);
  EXPECT_EQ(Submit(blue_, 10), nullptr);
  ASSERT_TRUE(Step());
  EXPECT_EQ(Submit(red_, 10), nullptr) << "counted again in each step";
}

TEST_F(SchedulerTenantsTest, TheTenantThatHasLessIsAdmittedFirst) {
  Start(/*slots=*/8, /*max_queue=*/100);
  std::vector<const Client*> red;
  for (int i = 0; i < 30; ++i) red.push_back(Submit(red_, 5));
  const Client* const blue = Submit(blue_, 5);
  ASSERT_TRUE(Step());
  EXPECT_TRUE(Started(blue));
  while (Step()) continue;
  // Those of one tenant ran in order.
  for (const Client* client : red) EXPECT_EQ(Tokens(client), 5u);
}

std::vector<uint32_t> Prompt(uint32_t first) {
  std::vector<uint32_t> tokens(40);
  for (uint32_t i = 0; i < 40; ++i) tokens[i] = (first + i * (1 + first / 50)) % FakeEngine::kVocab;
  return tokens;
}

TEST_F(SchedulerTenantsTest, AFloodOfPromptsPushesOutThoseOfItsTenant) {
  prefix_bytes_ = uint64_t{1} << 40;
  Start(/*slots=*/8, /*max_queue=*/16);
  Run(blue_, "kept", Prompt(0));
  Run(blue_, "", Prompt(1));
  for (uint32_t i = 2; i < 60; ++i) Run(red_, "", Prompt(i));
  EXPECT_TRUE(sessions_.Get({"blue", "kept"}).ok());
  EXPECT_EQ(Run(blue_, "", Prompt(1)), 32u);
  EXPECT_EQ(Run(red_, "", Prompt(2)), 0u);
}

TEST_F(SchedulerTenantsTest, AFloodOfSessionsPushesOutThoseOfItsTenant) {
  prefix_bytes_ = uint64_t{1} << 40;
  Start(/*slots=*/8, /*max_queue=*/16);
  Run(blue_, "kept", Prompt(0));
  Run(blue_, "", Prompt(1));
  for (uint32_t i = 2; i < 60; ++i) Run(red_, "s" + std::to_string(i), Prompt(i));
  EXPECT_TRUE(sessions_.Get({"blue", "kept"}).ok());
  EXPECT_EQ(Run(blue_, "", Prompt(1)), 32u);
  EXPECT_FALSE(sessions_.Get({"red", "s2"}).ok());
  EXPECT_TRUE(sessions_.Get({"red", "s59"}).ok());
}

// Turns that run count as what is idle does.
TEST_F(SchedulerTenantsTest, TurnsAtOncePushOutNoSessionsOfATenantThatHoldsLess) {
  Start(/*slots=*/16, /*max_queue=*/100);
  for (int i = 0; i < 6; ++i) Run(blue_, "b" + std::to_string(i), Prompt(0));
  std::vector<const Client*> red;
  for (int i = 0; i < 32; ++i) red.push_back(Submit(red_, 50));
  const Client* const green = Submit(std::make_shared<Tenant>("green"), 50);
  ASSERT_TRUE(Step());
  EXPECT_TRUE(Started(green)) << "others pass those that wait for their own";
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(Step());
  EXPECT_GE(metrics_.requests_running.value(), 8);
  while (Step()) continue;
  EXPECT_EQ(sessions_.List({"blue", ""}, 100).size(), 6u);
  for (const Client* client : red) EXPECT_EQ(Tokens(client), 50u) << "all have run";
}

// The first request of a tenant finds room, however much others hold.
TEST_F(SchedulerTenantsTest, ATenantForWhichNothingRunsTakesFromAll) {
  Start(/*slots=*/8, /*max_queue=*/100);
  std::vector<std::shared_ptr<Tenant>> small;
  for (int i = 0; i < 8; ++i) {
    small.push_back(std::make_shared<Tenant>("small" + std::to_string(i)));
    Run(small.back(), "s", Prompt(0));
  }
  Run(red_, "r", Prompt(0));
  EXPECT_TRUE(sessions_.Get({"red", "r"}).ok());
  EXPECT_FALSE(sessions_.Get({"small0", "s"}).ok()) << "the one used least recently";
}

// Two tails of red are more than any other holds.
TEST_F(SchedulerTenantsTest, ATenantForWhichNothingRunsTakesFromThoseThatHoldLess) {
  Start(/*slots=*/8, /*max_queue=*/100);
  for (int i = 0; i < 8; ++i) {
    Run(std::make_shared<Tenant>("small" + std::to_string(i)), "s", Prompt(0));
  }
  Client& client = clients_.emplace_back(2, 4096);
  auto request = MakeRequest(client, Prompt(1), 1);
  request->tenant = red_;
  ASSERT_TRUE(scheduler_->Submit(request).ok());
  while (Step()) continue;
  EXPECT_EQ(client.end, absl::OkStatus());
}

// A tenant that would have as much as another with what it asks for does not take from it first.
TEST_F(SchedulerTenantsTest, WhatIsAskedForCounts) {
  Start(/*slots=*/8, /*max_queue=*/100);
  for (int i = 0; i < 4; ++i) Run(blue_, "b" + std::to_string(i), Prompt(0));
  for (int i = 0; i < 5; ++i) Run(red_, "r" + std::to_string(i), Prompt(0));
  EXPECT_EQ(sessions_.List({"blue", ""}, 100).size(), 4u);
}

TEST_F(SchedulerTenantsTest, TokensThatAreAskedForCount) {
  max_session_tokens_ = 600;
  Start(/*slots=*/64, /*max_queue=*/16);
  const auto run = [&](const std::shared_ptr<Tenant>& tenant, const char* id, size_t tokens) {
    Run(tenant, id, std::vector<uint32_t>(tokens, 1));
  };
  for (const char* const id : {"r0", "r1"}) run(red_, id, 100);
  for (const char* const id : {"b0", "b1", "b2"}) run(blue_, id, 100);
  run(red_, "r2", 150);
  EXPECT_EQ(sessions_.List({"blue", ""}, 100).size(), 3u);
}

// However many others hold a little.
TEST_F(SchedulerTenantsTest, TheTenantThatHoldsTheMostLosesFirst) {
  Start(/*slots=*/32, /*max_queue=*/100);
  for (int i = 0; i < 8; ++i) Run(blue_, "b" + std::to_string(i), Prompt(0));
  for (int i = 0; i < 10; ++i) {
    Run(std::make_shared<Tenant>("small" + std::to_string(i)), "s", Prompt(0));
  }
  for (int i = 0; i < 40; ++i) Run(red_, "r" + std::to_string(i), Prompt(0));
  EXPECT_EQ(sessions_.List({"blue", ""}, 100).size(), 8u);
  EXPECT_EQ(sessions_.List({"red", ""}, 100).size(), 14u);
}

// A share of the tokens that sessions may hold, where it is they that lack.
TEST_F(SchedulerTenantsTest, LongSessionsOfOneTenantDoNotPushOutManyShortOnesOfAnother) {
  max_session_tokens_ = 1000;
  Start(/*slots=*/64, /*max_queue=*/16);
  for (int i = 0; i < 5; ++i) Run(blue_, "b" + std::to_string(i), Prompt(0));
  for (int i = 0; i < 20; ++i) {
    Run(red_, "r" + std::to_string(i), std::vector<uint32_t>(300, 1));
  }
  EXPECT_EQ(sessions_.List({"blue", ""}, 100).size(), 5u);
  EXPECT_TRUE(sessions_.Get({"red", "r19"}).ok());
}

TEST_F(SchedulerTenantsTest, WithoutTenantsWhatWasUsedLeastRecentlyGoes) {
  Start(/*slots=*/8, /*max_queue=*/16);
  const auto anyone = std::make_shared<Tenant>("");
  Run(anyone, "kept", Prompt(0));
  for (uint32_t i = 0; i < 60; ++i) Run(anyone, "s" + std::to_string(i), Prompt(i));
  EXPECT_FALSE(sessions_.Get("kept").ok());
}

TEST_F(SchedulerTenantsTest, WeightsDivideTheMachine) {
  red_->SetLimits({.weight = 3});
  Start(400, 400);
  std::vector<const Client*> red, blue;
  for (int i = 0; i < 100; ++i) red.push_back(Submit(red_, 100'000));
  for (int i = 0; i < 100; ++i) blue.push_back(Submit(blue_, 100'000));
  blue.push_back(Submit(std::make_shared<Tenant>("green"), 100'000));
  for (int i = 0; i < 600; ++i) ASSERT_TRUE(Step());
  const auto sum = [](const std::vector<const Client*>& clients) {
    double tokens = 0;
    for (const Client* client : clients) tokens += static_cast<double>(Tokens(client));
    return tokens;
  };
  blue.pop_back();
  EXPECT_NEAR(sum(red) / sum(blue), 3, 0.6);
}

}  // namespace
}  // namespace rivulet
