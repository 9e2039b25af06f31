// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/state_pool.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "server/engine/slot_bytes.h"

namespace rivulet {
namespace {

using ::testing::HasSubstr;

// Two layers: bases of 128 + 64 bytes, tails of 64 + 192.
StateCapacity TwoLayers() {
  StateLayout a, b;
  a.Add(StatePart::kBase, "s", DType::kFloat32, {17});
  a.Add(StatePart::kTail, "k", DType::kFloat32, {16});
  b.Add(StatePart::kBase, "s", DType::kBFloat16, {2, 16});
  b.Add(StatePart::kTail, "k", DType::kFloat32, {3, 16});
  const StateLayout* layers[] = {&a, &b};
  return AddUpLayouts(layers);
}

std::unique_ptr<StatePool> MakePool(uint64_t bytes) {
  auto pool = StatePool::Make(TwoLayers(), bytes);
  EXPECT_TRUE(pool.ok()) << pool.status();
  return *std::move(pool);
}

TEST(StatePoolTest, AddsUpLayersOnCacheLines) {
  const StateCapacity sizes = TwoLayers();
  EXPECT_EQ(sizes.base_bytes, 192u);
  EXPECT_EQ(sizes.tail_bytes, 256u);
  ASSERT_EQ(sizes.layers.size(), 2u);
  EXPECT_EQ(sizes.layers[0].base_offset, 0u);
  EXPECT_EQ(sizes.layers[1].base_offset, 128u);
  EXPECT_EQ(sizes.layers[0].tail_offset, 0u);
  EXPECT_EQ(sizes.layers[1].tail_offset, 64u);
}

TEST(StatePoolTest, SplitGivesEveryTailABaseAndSomeSpares) {
  for (uint64_t bytes : {640u, 1000u, 4096u, 100000u, 1234567u}) {
    const auto capacity = SplitStateMemory(TwoLayers(), bytes, 4096);
    ASSERT_TRUE(capacity.ok());
    const uint64_t tails = capacity->tail_slots, bases = capacity->base_slots;
    EXPECT_EQ(bases, tails + std::max<uint64_t>(1, tails / 8));
    EXPECT_LE(bases * 192 + tails * 256, bytes);
    EXPECT_GT((bases + 2) * 192 + (tails + 1) * 256, bytes) << "another session would fit";
  }
}

TEST(StatePoolTest, TooLittleMemoryNamesTheFlagAndTheLeastThatWorks) {
  const absl::Status status = SplitStateMemory(TwoLayers(), 639, 4096).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--state-memory is 639 bytes"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("needs 640"));
  EXPECT_EQ(LeastStateMemory(status), 640);
  EXPECT_EQ(LeastStateMemory(absl::ResourceExhaustedError("of something else")), std::nullopt);
}

TEST(StatePoolTest, AVastReservationCostsNothingUntilTouched) {
  auto pool = MakePool(uint64_t{1} << 40);
  EXPECT_EQ(pool->capacity().tail_slots, StatePool::kMaxTails);
}

TEST(StatePoolTest, AModelWithoutStateHasSlotsToo) {
  auto pool = StatePool::Make(AddUpLayouts({}), 0);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_TRUE((*pool)->tails().Acquire().ok());
}

TEST(StatePoolTest, LayersOfASlotDoNotOverlap) {
  auto pool = MakePool(4096);
  const uint32_t base = *pool->bases().Acquire();
  EXPECT_EQ(pool->Layer(1).Base<std::byte>(base, 0), BaseBytes(*pool, base).data() + 128);
  const uint32_t tail = *pool->tails().Acquire();
  EXPECT_EQ(pool->Layer(1).Tail<std::byte>(tail, 0), TailBytes(*pool, tail).data() + 64);
}

// The model: what each held slot should contain and how many hold it.
struct ModelSlot {
  uint32_t references = 0;
  unsigned char fill = 0;
};

class Contest {
 public:
  explicit Contest(uint32_t seed) : random_(seed), pool_(MakePool(6000)) {}

  void Step() {
    switch (random_() % 7) {
      case 0:
      case 1:
        return AcquireBase();
      case 2:
        return ShareBase();
      case 3:
        return ReleaseBase();
      case 4:
        return AcquireTail();
      case 5:
        return random_() % 3 ? CopyTail() : ReleaseTail();
      default:
        return Rewrite();
    }
  }

  void CheckEverything() const {
    ASSERT_EQ(pool_->bases().used(), bases_.size());
    ASSERT_EQ(pool_->tails().used(), tails_.size());
    for (const auto& [slot, model] : bases_) {
      ASSERT_EQ(pool_->bases().Shared(slot), model.references > 1);
      ASSERT_TRUE(AllBytesAre(BaseBytes(*pool_, slot), model.fill)) << "base " << slot;
    }
    for (const auto& [slot, model] : tails_) {
      ASSERT_TRUE(AllBytesAre(TailBytes(*pool_, slot), model.fill)) << "tail " << slot;
    }
  }

 private:
  using Model = std::map<uint32_t, ModelSlot>;

  static bool AllBytesAre(std::span<const std::byte> bytes, unsigned char fill) {
    return std::all_of(bytes.begin(), bytes.end(),
                       [&](std::byte b) { return b == std::byte{fill}; });
  }
  Model::iterator Pick(Model& model) {
    return model.empty() ? model.end() : std::next(model.begin(), random_() % model.size());
  }
  void Fill(std::span<std::byte> bytes, ModelSlot& slot) {
    slot.fill = random_() & 0xff;
    std::memset(bytes.data(), slot.fill, bytes.size());
  }

  void AcquireBase() {
    const auto slot = pool_->bases().Acquire();
    ASSERT_EQ(slot.ok(), bases_.size() < pool_->capacity().base_slots);
    if (!slot.ok()) {
      ASSERT_THAT(std::string(slot.status().message()), HasSubstr("--state-memory"));
      return;
    }
    const auto [added, is_new] = bases_.emplace(*slot, ModelSlot{1, 0});
    ASSERT_TRUE(is_new) << "handed out twice";
    Fill(BaseBytes(*pool_, *slot), added->second);
  }
  void ShareBase() {
    const auto picked = Pick(bases_);
    if (picked == bases_.end()) return;
    pool_->bases().Share(picked->first);
    ++picked->second.references;
  }
  void ReleaseBase() {
    const auto picked = Pick(bases_);
    if (picked == bases_.end()) return;
    pool_->bases().Release(picked->first);
    if (--picked->second.references == 0) bases_.erase(picked);
  }
  void AcquireTail() {
    const auto slot = pool_->tails().Acquire();
    ASSERT_EQ(slot.ok(), tails_.size() < pool_->capacity().tail_slots);
    if (!slot.ok()) return;
    const auto [added, is_new] = tails_.emplace(*slot, ModelSlot{1, 0});
    ASSERT_TRUE(is_new) << "handed out twice";
    Fill(TailBytes(*pool_, *slot), added->second);
  }
  void ReleaseTail() {
    const auto picked = Pick(tails_);
    if (picked == tails_.end()) return;
    pool_->tails().Release(picked->first);
    tails_.erase(picked);
  }
  void CopyTail() {
    const auto from = Pick(tails_), to = Pick(tails_);
    if (from == to) return;
    pool_->CopyTail(from->first, to->first);
    to->second.fill = from->second.fill;
  }
  void Rewrite() {
    const auto picked = Pick(bases_);
    if (picked != bases_.end()) Fill(BaseBytes(*pool_, picked->first), picked->second);
  }

  std::mt19937 random_;
  std::unique_ptr<StatePool> pool_;
  Model bases_;
  Model tails_;
};

TEST(StatePoolTest, AgreesWithASimpleModelOverRandomOperations) {
  Contest contest(TestSeed());
  for (int i = 0; i < 20000 && !testing::Test::HasFatalFailure(); ++i) {
    contest.Step();
    if (!testing::Test::HasFatalFailure()) contest.CheckEverything();
  }
}

TEST(StatePoolDeathTest, OurOwnMistakesAreCaught) {
  auto pool = MakePool(4096);
  const uint32_t slot = *pool->bases().Acquire();
  pool->bases().Release(slot);
  EXPECT_DEATH(pool->bases().Release(slot), "not held");
  EXPECT_DEATH(pool->bases().Share(slot), "not held");
}

// Three layers, two of them with appended pages and one with Fenwick pages.
StateCapacity LayersWithPages(size_t fold_interval = 16) {
  StateLayout attention(fold_interval), log_linear(fold_interval);
  attention.SetPageKind({PageRule::kAppended, 0, 0});
  attention.Add(StatePart::kTail, "k", DType::kFloat32, {16});
  attention.Add(StatePart::kPage, "k", DType::kFloat32, {20});
  log_linear.SetPageKind({PageRule::kFenwick, 10, 0});
  log_linear.Add(StatePart::kPage, "S", DType::kFloat32, {16});
  const StateLayout* layers[] = {&attention, &log_linear, &attention};
  return AddUpLayouts(layers);
}

TEST(StatePoolTest, LayersWithEqualKindsOfPagesShareTheirSlots) {
  const StateCapacity sizes = LayersWithPages();
  ASSERT_EQ(sizes.pages.size(), 2u);
  EXPECT_EQ(sizes.pages[0].page_bytes, 256u);
  EXPECT_EQ(sizes.pages[1].page_bytes, 64u);
  const size_t kinds[] = {0, 1, 0}, offsets[] = {0, 0, 128};
  ASSERT_EQ(sizes.layers.size(), 3u);
  for (size_t layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(sizes.layers[layer].page_kind, kinds[layer]);
    EXPECT_EQ(sizes.layers[layer].page_offset, offsets[layer]);
  }
}

TEST(StatePoolTest, PagesAreAsManyAsSessionsOfTheStatedContextNeed) {
  const auto capacity = SplitStateMemory(LayersWithPages(), 1 << 20, 512);
  ASSERT_TRUE(capacity.ok());
  ASSERT_EQ(capacity->pages.size(), 2u);
  EXPECT_EQ(capacity->pages[0].slots, capacity->tail_slots * 32);
  EXPECT_EQ(capacity->pages[1].slots, capacity->tail_slots * 7);  // 32 = 0b100000, and one
  const auto longer = SplitStateMemory(LayersWithPages(), 1 << 20, 4096);
  EXPECT_LT(longer->tail_slots, capacity->tail_slots);
  const auto long_chunks = SplitStateMemory(LayersWithPages(32), 1 << 20, 512);
  EXPECT_EQ(long_chunks->fold_interval, 32u);
  EXPECT_EQ(long_chunks->pages[0].slots, long_chunks->tail_slots * 16);
}

TEST(StatePoolTest, AContextShorterThanAChunkIsRefused) {
  EXPECT_TRUE(SplitStateMemory(LayersWithPages(32), 1 << 20, 32).ok());
  const absl::Status status = SplitStateMemory(LayersWithPages(32), 1 << 20, 31).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--state-context=31"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("at least 32 tokens"));
}

// So long that the pages of many sessions are more than 2^32.
TEST(StatePoolTest, PagesOfVeryLongContextsDoNotOverflow) {
  const auto capacity = SplitStateMemory(LayersWithPages(), uint64_t{1} << 30, uint64_t{1} << 22);
  ASSERT_TRUE(capacity.ok());
  ASSERT_GE(capacity->tail_slots, 1u);
  EXPECT_EQ(capacity->pages[0].slots, uint64_t{capacity->tail_slots} << 18);
}

TEST(StatePoolTest, TooLittleMemoryForPagesNamesBothFlags) {
  const absl::Status status = SplitStateMemory(LayersWithPages(), 1000, 4096).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--state-memory is 1000 bytes"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("lower --state-context"));
}

TEST(StatePoolTest, PagesLieApartFromEverythingElse) {
  auto made = StatePool::Make(LayersWithPages(), 1 << 16, 64);
  ASSERT_TRUE(made.ok());
  StatePool& pool = **made;
  std::vector<std::pair<std::byte*, size_t>> parts;
  const uint32_t base = *pool.bases().Acquire(), tail = *pool.tails().Acquire();
  parts.emplace_back(BaseBytes(pool, base).data(), 0);
  parts.emplace_back(TailBytes(pool, tail).data(), TailBytes(pool, tail).size());
  for (size_t layer = 0; layer < 3; ++layer) {
    const LayerState state = pool.Layer(layer);
    for (int i = 0; i < 3; ++i) {
      const auto slot = pool.pages(state.page_kind).Acquire();
      ASSERT_TRUE(slot.ok());
      parts.emplace_back(state.Page<std::byte>(*slot, 0), 64);
    }
  }
  std::sort(parts.begin(), parts.end());
  for (size_t i = 1; i < parts.size(); ++i) {
    EXPECT_LE(parts[i - 1].first + parts[i - 1].second, parts[i].first);
  }
}

TEST(StatePoolTest, PagesAreCountedAndRunOut) {
  auto made = StatePool::Make(LayersWithPages(), 1 << 14, 64);
  ASSERT_TRUE(made.ok());
  StatePool& pool = **made;
  const uint32_t slots = pool.capacity().pages[0].slots;
  std::vector<uint32_t> held;
  for (uint32_t i = 0; i < slots; ++i) held.push_back(*pool.pages(0).Acquire());
  EXPECT_EQ(pool.pages(0).used(), slots);
  const absl::Status full = pool.pages(0).Acquire().status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("--state-memory"));
  pool.pages(0).Share(held[0]);
  EXPECT_TRUE(pool.pages(0).Shared(held[0]));
  pool.pages(0).Release(held[0]);
  EXPECT_FALSE(pool.pages(0).Shared(held[0]));
  for (const uint32_t slot : held) pool.pages(0).Release(slot);
  EXPECT_EQ(pool.pages(0).used(), 0u);
}

}  // namespace
}  // namespace rivulet
