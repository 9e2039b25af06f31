// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/session/prefix_cache.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "server/engine/fake_engine.h"

namespace rivulet {
namespace {

constexpr uint64_t kChunk = 16;
constexpr uint64_t kLarge = uint64_t{1} << 40;

std::vector<uint32_t> Tokens(size_t count, uint32_t first = 0) {
  std::vector<uint32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = first + static_cast<uint32_t>(i);
  return tokens;
}

class PrefixCacheTest : public testing::Test {
 protected:
  // A state with one base and nothing else.
  std::shared_ptr<StatePoint> Point(uint64_t position) {
    auto point = std::make_shared<StatePoint>();
    point->position = position;
    point->base = *SlotHandle::Acquire(engine_.states().bases());
    return point;
  }
  void Keep(const std::vector<uint32_t>& tokens, const std::string& salt = "") {
    cache_.Keep(salt, tokens, Point(tokens.size()));
  }
  uint64_t Found(const std::vector<uint32_t>& tokens, const std::string& salt = "") {
    const PrefixCache::Match match = cache_.Find(salt, tokens);
    return match.point == nullptr ? 0 : match.point->position;
  }
  uint64_t Known(const std::vector<uint32_t>& tokens) { return cache_.Find("", tokens).known; }
  uint32_t bases_used() { return engine_.states().bases().used(); }
  uint64_t dropped(PrefixDrop why) {
    return metrics_.prefix_drops[static_cast<size_t>(why)].value();
  }

  FakeEngine engine_{64};
  Metrics metrics_;
  const uint64_t base_ = engine_.capacity().base_bytes;
  PrefixCache cache_{engine_.capacity(), {kLarge, 100000}, metrics_};
};

TEST_F(PrefixCacheTest, FindsTheLastStateOnTheWay) {
  const auto tokens = Tokens(100);
  Keep(Tokens(16));
  Keep(Tokens(64));
  EXPECT_EQ(Found(tokens), 64u);
  EXPECT_EQ(Found(Tokens(64)), 64u);
  EXPECT_EQ(Found(Tokens(63)), 16u);
  EXPECT_EQ(Found(Tokens(17)), 16u);
  EXPECT_EQ(Found(Tokens(15)), 0u);
  EXPECT_EQ(Found(Tokens(100, 1)), 0u);
  EXPECT_EQ(metrics_.prefix_states.value(), 2);
  EXPECT_EQ(metrics_.prefix_bytes.value(), static_cast<int64_t>(2 * base_));
}

// One that floods the cache loses its own.
TEST_F(PrefixCacheTest, ATenantKeepsItsShareOfBytesBesideOneThatFloods) {
  PrefixCache cache(engine_.capacity(), {8 * base_, 100000}, metrics_);
  const auto keep = [&](const std::string& salt, uint32_t first) {
    cache.Keep(salt, Tokens(32, first), Point(32));
  };
  const auto found = [&](const std::string& salt, uint32_t first) {
    return cache.Find(salt, Tokens(32, first)).point != nullptr;
  };
  for (uint32_t i = 0; i < 4; ++i) keep(SaltOf("blue", "x"), 1000 * i);
  // What red keeps is worth more, as it was used later.
  for (uint32_t i = 0; i < 100; ++i) keep(SaltOf("red", std::to_string(i)), 1000 * i);
  EXPECT_EQ(cache.states(), 8u);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(found(SaltOf("blue", "x"), 1000 * i)) << i;
  EXPECT_TRUE(found(SaltOf("red", "99"), 99000));
  TenantAmounts held;
  cache.AddBytes(held);
  EXPECT_EQ(held, (TenantAmounts{{"blue", 4 * base_}, {"red", 4 * base_}}));
  // Both have their share: then the worth alone counts.
  keep(SaltOf("blue", "x"), 9000);
  EXPECT_TRUE(found(SaltOf("red", "99"), 99000));
}

TEST_F(PrefixCacheTest, ATenantKeepsItsShareOfTokensBesideOneThatFloods) {
  PrefixCache cache(engine_.capacity(), {kLarge, 16 * 1024}, metrics_);
  cache.Keep(SaltOf("blue", ""), Tokens(1024), Point(1024));
  for (uint32_t i = 0; i < 100; ++i) {
    cache.Remember(SaltOf("red", std::to_string(i % 10)), Tokens(1024, 5000 * i));
  }
  EXPECT_LE(cache.tokens(), 16u * 1024);
  EXPECT_EQ(cache.Find(SaltOf("blue", ""), Tokens(1024)).known, 1024u);
  EXPECT_EQ(cache.states(), 1u);
  EXPECT_EQ(cache.Find(SaltOf("red", "9"), Tokens(1024, 5000 * 99)).known, 1024u);
  EXPECT_EQ(cache.Find(SaltOf("red", "0"), Tokens(1024)).known, 0u);
}

TEST_F(PrefixCacheTest, DropsOfTheTenantsThatAreNamed) {
  const std::string red = SaltOf("red", ""), blue = SaltOf("blue", "");
  Keep(Tokens(32), blue);
  Keep(Tokens(64, 500), red);  // worth more
  Keep(Tokens(96, 900), red);
  const TenantNames names = {"red"}, none = {"green"};
  EXPECT_FALSE(cache_.Drop(nullptr, &none));
  EXPECT_TRUE(cache_.Drop(cache_.Find(red, Tokens(64, 500)).point.get(), &names));
  EXPECT_EQ(Found(Tokens(64, 500), red), 64u);
  EXPECT_TRUE(cache_.Drop(cache_.Find(red, Tokens(64, 500)).point.get(), &names)) << "the last";
  EXPECT_FALSE(cache_.Drop(nullptr, &names));
  EXPECT_EQ(Found(Tokens(32), blue), 32u);
  EXPECT_TRUE(cache_.Drop());
  EXPECT_EQ(cache_.states(), 0u);
}

TEST_F(PrefixCacheTest, ComparesEveryToken) {
  Keep(Tokens(64));
  for (size_t i = 0; i < 64; ++i) {
    auto other = Tokens(64);
    other[i] ^= 1u << 31;
    EXPECT_EQ(Found(other), 0u) << i;
    EXPECT_EQ(Known(other), i / kChunk * kChunk);
  }
}

TEST_F(PrefixCacheTest, SaltsShareNothing) {
  Keep(Tokens(32), "a");
  EXPECT_EQ(Found(Tokens(32), "a"), 32u);
  EXPECT_EQ(Found(Tokens(32), ""), 0u);
  EXPECT_EQ(Found(Tokens(32), "b"), 0u);
  Keep(Tokens(16), "b");
  EXPECT_EQ(Found(Tokens(32), "b"), 16u);
}

TEST_F(PrefixCacheTest, KnowsWhereContextsPart) {
  auto other = Tokens(100);
  other[50] = 7777;
  cache_.Remember("", Tokens(100));
  EXPECT_EQ(Known(other), 48u);
  EXPECT_EQ(Found(other), 0u);
  cache_.Remember("", other);
  EXPECT_EQ(Known(other), 96u);
  EXPECT_EQ(Known(Tokens(100)), 96u);
  Keep(Tokens(48));
  EXPECT_EQ(Found(other), 48u);
}

TEST_F(PrefixCacheTest, DropsWhatIsWorthLeast) {
  Keep(Tokens(16));
  Keep(Tokens(64));  // saves 48 tokens beside the first
  Keep(Tokens(32, 500));
  EXPECT_TRUE(cache_.Drop());
  EXPECT_EQ(Found(Tokens(64)), 64u);
  EXPECT_EQ(Found(Tokens(16)), 0u);
  EXPECT_EQ(Found(Tokens(32, 500)), 32u);
  // Without the one before it, that at 64 saves 64 tokens; two uses save 2 x 32, and are newer.
  cache_.CountUse("", Tokens(32, 500));
  EXPECT_TRUE(cache_.Drop());
  EXPECT_EQ(Found(Tokens(64)), 0u);
  EXPECT_TRUE(cache_.Drop());
  EXPECT_FALSE(cache_.Drop());
  EXPECT_EQ(bases_used(), 0u);
  EXPECT_EQ(cache_.bytes(), 0u);
  EXPECT_EQ(dropped(PrefixDrop::kSlots), 3u);
}

TEST_F(PrefixCacheTest, SparesOneUntilItIsTheLast) {
  Keep(Tokens(16));
  Keep(Tokens(64, 500));
  const StatePoint* const spared = cache_.Find("", Tokens(16)).point.get();
  EXPECT_TRUE(cache_.Drop(spared));
  EXPECT_EQ(Found(Tokens(16)), 16u);
  EXPECT_TRUE(cache_.Drop(spared));
  EXPECT_EQ(cache_.states(), 0u);
}

// What was used often goes in the end if it is not used any more.
TEST_F(PrefixCacheTest, WorthAges) {
  PrefixCache cache(engine_.capacity(), {2 * base_, 100000}, metrics_);
  const auto keep = [&](const std::vector<uint32_t>& tokens) {
    cache.Keep("", tokens, Point(tokens.size()));
  };
  keep(Tokens(64));
  for (int i = 0; i < 5; ++i) cache.CountUse("", Tokens(64));
  int rounds = 0;
  while (cache.Find("", Tokens(64)).point != nullptr && rounds < 100) {
    keep(Tokens(64, 1000 * static_cast<uint32_t>(++rounds)));
    EXPECT_LE(cache.bytes(), 2 * base_);
  }
  EXPECT_GT(rounds, 3);
  EXPECT_LT(rounds, 100);
}

TEST_F(PrefixCacheTest, ForgetsTokensByTheirLastUse) {
  PrefixCache cache(engine_.capacity(), {kLarge, 1000}, metrics_);
  for (uint32_t i = 0; i < 20; ++i) {
    cache.Remember("", Tokens(64, 1000 * i));
    cache.Remember("", Tokens(64));
    EXPECT_LE(cache.tokens(), 1000u);
  }
  EXPECT_EQ(cache.Find("", Tokens(64)).known, 64u);
  EXPECT_EQ(cache.Find("", Tokens(64, 19000)).known, 64u);
  EXPECT_EQ(cache.Find("", Tokens(64, 1000)).known, 0u);
  cache.Remember("", Tokens(400));
  EXPECT_EQ(cache.Find("", Tokens(400)).known, 64u) << "more than a quarter";
  cache.Clear();
  EXPECT_EQ(cache.tokens(), 0u);
}

TEST_F(PrefixCacheTest, TokensTakeTheirStatesWithThem) {
  PrefixCache cache(engine_.capacity(), {kLarge, 600}, metrics_);
  cache.Keep("", Tokens(64), Point(64));
  for (uint32_t i = 1; i < 9; ++i) cache.Remember("", Tokens(64, 1000 * i));
  EXPECT_EQ(cache.states(), 0u);
  EXPECT_EQ(bases_used(), 0u);
  EXPECT_EQ(dropped(PrefixDrop::kTokens), 1u);
}

TEST_F(PrefixCacheTest, IsOffWithoutBytes) {
  PrefixCache cache(engine_.capacity(), {}, metrics_);
  EXPECT_FALSE(cache.on());
  cache.Keep("", Tokens(16), Point(16));
  cache.Remember("", Tokens(64));
  EXPECT_EQ(cache.states(), 0u);
  EXPECT_EQ(cache.tokens(), 0u);
}

TEST_F(PrefixCacheTest, ForgetsWhatIsATenants) {
  const std::string red = SaltOf("red", ""), salted = SaltOf("red", "s"), blue = SaltOf("blue", "");
  for (const std::string& salt : {red, salted, blue}) {
    Keep(Tokens(16), salt);
    Keep(Tokens(64), salt);
    cache_.Remember(salt, Tokens(96, 500));
  }
  const uint64_t tokens = cache_.tokens(), bytes = cache_.bytes();
  cache_.Forget("nobody");
  EXPECT_EQ(cache_.tokens(), tokens);
  cache_.Forget("red");
  EXPECT_EQ(Found(Tokens(64), red) + Found(Tokens(64), salted), 0u);
  EXPECT_EQ(cache_.Find(red, Tokens(96, 500)).known, 0u);
  EXPECT_EQ(Found(Tokens(64), blue), 64u);
  EXPECT_EQ(cache_.states(), 2u);
  EXPECT_EQ(bases_used(), 2u);
  EXPECT_EQ(cache_.tokens(), tokens / 3);
  EXPECT_EQ(cache_.bytes(), bytes / 3);
  Keep(Tokens(32), red);
  EXPECT_EQ(Found(Tokens(64), red), 32u);
  cache_.Forget("blue");
  cache_.Forget("red");
  EXPECT_EQ(cache_.tokens() + cache_.bytes() + cache_.states() + bases_used(), 0u);
}

// One node below the other, as deep as they come.
TEST_F(PrefixCacheTest, LongChainsAreDestroyed) {
  PrefixCache cache(engine_.capacity(), {kLarge, uint64_t{1} << 30}, metrics_);
  const auto tokens = Tokens(kChunk * 4000);
  for (size_t end = tokens.size(); end > 0; end -= kChunk) {
    cache.Remember("", std::span(tokens).first(end));
  }
  EXPECT_EQ(cache.Find("", tokens).known, 4000 * kChunk);
}

// Against a list of all that was kept.
TEST_F(PrefixCacheTest, FindsWhatAListFinds) {
  std::mt19937_64 random(TestSeed());
  const auto below = [&](uint64_t limit) { return random() % limit; };
  // Three ids, so that beginnings meet often.
  const auto some = [&] {
    std::vector<uint32_t> tokens(kChunk * (1 + below(6)));
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = i % kChunk == 0 ? static_cast<uint32_t>(below(3)) : 0;
    }
    return tokens;
  };
  PrefixCache cache(engine_.capacity(), {20 * base_, 6000}, metrics_);
  std::map<std::pair<std::string, std::vector<uint32_t>>, std::weak_ptr<StatePoint>> kept;
  for (int round = 0; round < 3000; ++round) {
    const std::string salt = below(2) == 0 ? "" : "s";
    const auto tokens = some();
    const uint64_t what = below(8);
    if (what < 3) cache.Remember(salt, tokens);
    if (what >= 3 && what < 6) {
      auto& entry = kept[{salt, tokens}];
      if (entry.expired()) {
        auto point = Point(tokens.size());
        entry = point;
        cache.Keep(salt, tokens, std::move(point));
      }
    }
    if (what == 6) (void)cache.Drop();
    if (round % 500 == 499) cache.Forget("");
    const auto wanted = some();
    uint64_t longest = 0;
    size_t alive = 0;
    for (const auto& [key, point] : kept) {
      if (point.expired()) continue;
      ++alive;
      const auto& [its_salt, ids] = key;
      const bool begins = its_salt == salt && ids.size() <= wanted.size() &&
                          std::equal(ids.begin(), ids.end(), wanted.begin());
      if (begins) longest = std::max<uint64_t>(longest, ids.size());
    }
    const PrefixCache::Match match = cache.Find(salt, wanted);
    ASSERT_EQ(match.point == nullptr ? 0 : match.point->position, longest) << round;
    ASSERT_GE(match.known, longest);
    if (match.point != nullptr && what == 7) {
      cache.CountUse(salt, std::span(wanted).first(longest));
    }
    ASSERT_EQ(cache.states(), alive);
    ASSERT_EQ(cache.bytes(), alive * base_);
    ASSERT_EQ(bases_used(), alive);
    ASSERT_LE(alive, 20u);
    ASSERT_LE(cache.tokens(), 6000u);
  }
  cache.Clear();
  EXPECT_EQ(bases_used(), 0u);
}

}  // namespace
}  // namespace rivulet
